"""What a GPU, a link, a model and a backend cost: time, memory, watts, dollars.

Pure functions of shapes: no clock, no SimPy, no Optuna.
"""
