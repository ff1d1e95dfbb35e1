"""Fits of model coefficients to measurements, each with its held-out error."""
