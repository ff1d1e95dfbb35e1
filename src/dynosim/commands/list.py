"""``dynosim list``: the names that the other commands know."""
