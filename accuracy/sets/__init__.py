"""Measured serving results, one module a set: the folder is the register.

Each module has ``SOURCES``, the file names that it reads below the data folder, and
``read(folder) -> list[Case]``. A row that cannot become a case is left out with its reason in
``dropped(folder) -> dict[str, int]``: reason to number of rows.
"""
