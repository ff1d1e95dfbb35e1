"""An engine's steps become tables and overheads, exactly where steps are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.verification.fitted_tables import write_fitted
from dynosim.verification.step_fit import fit_steps
from own_steps import ATTENTION, LINEAR, SAMPLED_S, STEP_S, arguments, steps, tables


@pytest.fixture
def engine(tmp_path: Path) -> ResolvedEngine:
    folder = tmp_path / "alone"
    folder.mkdir()
    return resolve_engine(arguments(kernel_tables=tables(folder), calibration="none"))


def test_what_steps_are_made_of_is_found_again(engine: ResolvedEngine) -> None:
    fit = fit_steps(engine, {"a": steps(engine, 1), "b": steps(engine, 2)})
    assert fit.host_step_s == pytest.approx(STEP_S, rel=1e-3)
    assert fit.host_per_sequence_s == pytest.approx(SAMPLED_S, rel=1e-2)
    assert fit.linear_factor == pytest.approx(LINEAR, rel=1e-3)
    assert fit.attention_factor == pytest.approx(ATTENTION, rel=1e-2)
    assert fit.held_out == pytest.approx({"a": 0.0, "b": 0.0}, abs=1e-3)


def test_the_files_time_steps_as_they_were(engine: ResolvedEngine, tmp_path: Path) -> None:
    """What is written, read back as any command reads it, prices the fitted steps."""
    recorded = steps(engine, 1)
    fit = fit_steps(engine, {"a": recorded, "b": steps(engine, 2)})
    folder = tmp_path / "fitted"
    write_fitted(engine, fit, "an engine", folder)
    own = arguments(kernel_tables=str(folder), calibration=str(folder / "overheads.yaml"))
    timer = StepTimer.compile(resolve_engine(own))
    for step in recorded:
        prefill = sum(timer.prefill_attention_s(w.tokens, w.context_tokens) for w in step.chunks)
        sampled, context = len(step.new_tokens), step.decode_context_tokens
        seconds = timer.step_s(step.tokens, sampled, prefill, len(step.decodes), context)
        assert seconds == pytest.approx(step.cost_s, rel=0.01)


def test_the_tables_say_what_was_done_to_them(engine: ResolvedEngine, tmp_path: Path) -> None:
    fit = fit_steps(engine, {"a": steps(engine, 1), "b": steps(engine, 2)})
    write_fitted(engine, fit, "an engine", tmp_path / "fitted")
    header = (tmp_path / "fitted" / "tables.yaml").read_text()
    assert "products x 1.250, attention x 0.800, as in 120 steps of an engine" in header


def test_one_load_is_too_little(engine: ResolvedEngine) -> None:
    with pytest.raises(UserError, match=r"60 steps of 1 load\(s\) are too few"):
        fit_steps(engine, {"a": steps(engine, 1)})
