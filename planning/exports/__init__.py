"""Launch files and benchmark commands in the vendors' own spelling, one module a target.

A module offers ``write(candidate) -> {file name: text}``.
"""
