"""From a frontier to a real engine and back: choose, launch, load, read, compare, feed back."""
