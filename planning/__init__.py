"""What to decide: how many users, how many GPUs, what a change is worth, and how to launch it."""
