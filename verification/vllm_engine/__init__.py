"""vLLM's own engine, stepped by hand in a process of its own: what steps did and cost."""
