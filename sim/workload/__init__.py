"""What arrives: traces, generators and their columns."""
