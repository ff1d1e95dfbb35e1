"""Places where candidates can be measured, one file each."""
