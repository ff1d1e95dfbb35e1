"""Fits the model of mixed batches and prints its held-out error beside its rivals'.

    python -m dynosim.hardware_models.calibration.mixed_batch DATA [--write]

``DATA`` is a folder of LLMServingSim profiles (see :mod:`.mixed_grid`). ``--write`` stores the
coefficients in ``data/mixed_batch.yaml`` and the table in ``docs/mixed-batches.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from dynosim.hardware_models.calibration.mixed_forms import FORMS, TILES, US, Form
from dynosim.hardware_models.calibration.mixed_grid import (
    FloatArray,
    MixedGrid,
    read_mixed_grids,
)
from dynosim.hardware_models.calibration.mixed_report import (
    HeldOut,
    document,
    forms_text,
    table_text,
    yaml_text,
)
from dynosim.hardware_models.cards import DATA
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.timing.mixed import TileCoefficients

POINTS_PER_GRID = 600
"""Rows of each measured grid that a fit sees; all rows are scored."""

SOFT = 0.1
"""Relative error from which a point's pull on the fit grows linearly, not by its square."""


def fit(form: Form, grid: MixedGrid) -> FloatArray:
    """Returns the form's parameters: bounded, robust least squares of the log ratio."""
    if not form.start:
        return np.zeros(0)
    from scipy.optimize import least_squares

    start = np.array(form.start)

    def residuals(parameters: FloatArray) -> FloatArray:
        return np.asarray(np.log(form.seconds(parameters, grid) / grid.mixed_s))

    answer = least_squares(
        residuals,
        start,
        bounds=(np.array(form.lower), np.array(form.upper)),
        loss="soft_l1",
        f_scale=SOFT,
        x_scale=np.maximum(np.abs(start), 0.1),
        diff_step=[1e-3] * len(start),
        ftol=1e-5,
        max_nfev=60,
    )
    return np.asarray(answer.x, dtype=np.float64)


def errors(form: Form, parameters: FloatArray, grid: MixedGrid) -> FloatArray:
    """Returns |predicted / measured - 1|, shape (points,)."""
    return np.abs(form.seconds(parameters, grid) / grid.mixed_s - 1.0)


def held_out(grid: MixedGrid, forms: tuple[Form, ...] = FORMS) -> Iterator[HeldOut]:
    """Yields the errors of every form, leaving out one model, then one GPU, at a time."""
    thin = grid.thinned(POINTS_PER_GRID)
    for axis in ("model", "gpu"):
        for name in sorted(set(getattr(grid, axis))):
            seen = thin.where(getattr(thin, axis) != name)
            unseen = grid.where(getattr(grid, axis) == name)
            yield from _scores(forms, seen, unseen, f"{axis} {name}")


def _scores(
    forms: tuple[Form, ...], seen: MixedGrid, unseen: MixedGrid, left_out: str
) -> Iterator[HeldOut]:
    for form in forms:
        wrong = errors(form, fit(form, seen), unseen)
        for name in sorted(set(unseen.name)):
            rows = wrong[unseen.name == name]
            median, p90 = np.quantile(rows, [0.5, 0.9])
            yield HeldOut(form.name, left_out, name, len(rows), float(median), float(p90))


def fitted(grid: MixedGrid) -> TileCoefficients:
    """Returns the coefficients of the run-time model, fitted to all grids."""
    tile_us, empty_us, l2_share, reread_share = fit(TILES, grid.thinned(POINTS_PER_GRID))
    return TileCoefficients(
        tile_s=float(tile_us) * US,
        empty_tile_s=float(empty_us) * US,
        l2_share=float(l2_share),
        reread_share=float(reread_share),
    )


def main(arguments: list[str]) -> None:
    """Prints the table of held-out errors; with ``--write`` stores it and the coefficients."""
    folders = [a for a in arguments if a != "--write"]
    if len(folders) != 1:
        raise UserError(
            f"expected one folder, got {folders}", hint=(__doc__ or "").split("\n\n")[1]
        )
    grid = read_mixed_grids(Path(folders[0]))
    found, scores = fitted(grid), list(held_out(grid))
    today = datetime.now(UTC).date().isoformat()
    print(table_text(scores))
    print("\n" + forms_text(scores) + "\n")
    print(yaml_text(found, grid, scores, today))
    if "--write" in arguments:
        (DATA / "mixed_batch.yaml").write_text(yaml_text(found, grid, scores, today))
        docs = DATA.parent.parent / "docs"
        if not docs.is_dir():
            raise UserError("no docs folder: not a checkout", where=str(docs))
        (docs / "mixed-batches.md").write_text(document(found, grid, scores, today))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(str(error))
