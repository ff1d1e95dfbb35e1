"""Replicas on one clock, and the router in front of them."""
