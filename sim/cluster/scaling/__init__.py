"""Replicas that come and go: starts, drains, failures, and who decides how many there are."""
