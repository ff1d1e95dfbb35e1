"""Builds the shipped kernel tables from their public source; not needed at run time.

``python -m dynosim.hardware_models.build_data --help`` says how.
"""
