"""Forecasters of a request rate. One module a method; its name is the forecaster's name.

A module offers ``make(options) -> Forecaster``.
"""
