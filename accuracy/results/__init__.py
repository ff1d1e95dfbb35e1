"""Result files of benchmark tools, one module a tool: the folder is the register.

Each module has ``recognises(document) -> bool`` and ``read(document, where) -> list[MeasuredRun]``,
where ``document`` is one JSON value of a file and ``where`` says which. A field that a run cannot
do without and that is missing is a UserError.
"""
