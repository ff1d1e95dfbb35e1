"""One serving engine: paged KV cache, batch scheduler and its clock."""
