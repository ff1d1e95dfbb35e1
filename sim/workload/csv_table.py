"""A CSV trace read by column name, fast where it is sound and exact about lines where it is not."""

from __future__ import annotations

import csv
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.trace_file import TraceFile


def header_names(head: str) -> list[str]:
    """Returns the column names of a header line as written, without surrounding blanks."""
    return [name.strip() for name in next(csv.reader([head]), [])]


def has_columns(head: str, names: tuple[str, ...]) -> bool:
    """Returns whether the header line ``head`` has all ``names``, in any order and case."""
    return {n.casefold() for n in names} <= {n.casefold() for n in header_names(head)}


@dataclass(frozen=True)
class CsvTable:
    """Data rows under a header; every row has as many fields as the header."""

    file: TraceFile
    header: list[str]

    @property
    def rows(self) -> list[str]:
        """The data lines, unparsed."""
        return self.file.lines[1:]

    def where(self, row: int) -> str:
        """Returns ``file:line`` of data row ``row``."""
        return self.file.where(row + 1)

    def numbers(self, *names: str) -> list[FloatArray]:
        """Returns the named columns; raises ``UserError`` at the first field that is no number."""
        columns = [self._index(name) for name in names]
        try:
            table = np.loadtxt(
                self.rows, delimiter=",", quotechar='"', comments=None, usecols=columns, ndmin=2
            )
        except ValueError as error:
            raise self._first_fault(names, columns, str(error)) from None
        return list(table.T)

    def strings(self, name: str) -> list[str]:
        """Returns the fields of a column as written."""
        column = self._index(name)
        if '"' in self.file.text:
            return [fields[column].strip() for fields in csv.reader(self.rows)]
        return [row.split(",")[column].strip() for row in self.rows]

    def _index(self, name: str) -> int:
        folded = [n.casefold() for n in self.header]
        return folded.index(name.casefold())

    def _first_fault(self, names: tuple[str, ...], columns: list[int], why: str) -> UserError:
        for row, fields in enumerate(csv.reader(self.rows)):
            for name, column in zip(names, columns, strict=True):
                if not _is_number(fields[column]):
                    found = f"`{name}` is {fields[column].strip()!r}"
                    return UserError(found, where=self.where(row), hint="allowed: a number")
        return UserError(why, where=self.file.path)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def read_table(file: TraceFile, needed: tuple[str, ...]) -> CsvTable:
    """Returns the table of ``file``; raises ``UserError`` where a needed column or all rows are
    missing, or a row has another number of fields than the header."""
    header = header_names(file.lines[0])
    folded = {name.casefold() for name in header}
    for name in needed:
        if name.casefold() not in folded:
            raise _missing_column(file, name, header)
    if len(file.lines) == 1:
        raise UserError("a header but no rows", where=file.where(0), hint="allowed: >= 1 row")
    table = CsvTable(file, header)
    for row, width in enumerate(_widths(table)):
        if width != len(header):
            found = f"{width} fields: {_shorten(table.rows[row])}"
            raise UserError(found, where=table.where(row), hint=f"allowed: {len(header)} fields")
    return table


def _widths(table: CsvTable) -> list[int]:
    if '"' in table.file.text:
        return [len(fields) for fields in csv.reader(table.rows)]
    return [row.count(",") + 1 for row in table.rows]


def _missing_column(file: TraceFile, name: str, header: list[str]) -> UserError:
    import difflib

    near = difflib.get_close_matches(name, header, n=1)
    hint = f"found: {', '.join(header)}" + (f"; nearest: {near[0]}" if near else "")
    return UserError(f"no column `{name}`", where=file.where(0), hint=hint)


def _shorten(line: str, width: int = 60) -> str:
    return repr(line if len(line) <= width else line[: width - 1] + "…")
