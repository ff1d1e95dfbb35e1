"""One file a table family; ``build(lab, key)`` returns the kernels that can run that shape."""
