"""Where device memory goes, and how many tokens of context are left room for."""
