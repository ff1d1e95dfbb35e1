"""vLLM's own engine, stepped by hand in a process of its own: what it did and cost, step by step."""
