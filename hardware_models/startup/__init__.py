"""Start-up: what passes between asking for a replica and its first request, stage by stage."""
