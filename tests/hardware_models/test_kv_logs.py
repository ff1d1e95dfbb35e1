"""The memory plan against KV-cache sizes that real vLLM printed (tier A: full start-up logs)."""

import pytest

from dynosim.hardware_models.memory.evaluate import LOGS, accuracy, read_logs
from dynosim.hardware_models.memory.plan import plan_memory


@pytest.fixture(scope="module")
def starts(shared_data):
    folder = shared_data / "groundtruth"
    if not (folder / LOGS).is_file():
        pytest.skip(f"no {LOGS} in {folder}")
    return read_logs(folder)


def test_half_the_errors_are_below_4_percent_and_90_percent_below_10(starts):
    found = accuracy(starts)
    assert found["n"] >= 45
    assert found["median"] <= 0.04
    assert found["within_10_percent"] >= 0.90


@pytest.mark.parametrize("held_out", [False, True])
def test_both_halves_meet_the_bar(starts, held_out):
    found = accuracy(start for start in starts if start.is_held_out == held_out)
    assert found["median"] <= 0.01
    assert found["within_10_percent"] >= 0.90


def test_weights_are_within_2_percent(starts):
    for start in starts:
        if start.weights_gib is not None and start.engine.args.pipeline_parallel_size == 1:
            planned = plan_memory(start.engine).weights_bytes / 2**30
            # The 405-million-parameter vision towers are known to a tenth.
            slack = 0.02 * start.weights_gib + 0.05
            assert abs(planned - start.weights_gib) <= slack, start.source


def test_what_real_vllm_refused_is_refused(starts):
    """All but a start of data parallel size 2, whose log does not say why it failed."""
    refused = {
        (s.engine.model.name, s.engine.args.tensor_parallel_size): plan_memory(s.engine)
        for s in starts
        if s.failed and "dp2" not in s.source
    }
    assert len(refused) == 3
    for start, found in refused.items():
        assert not found.feasible, start
        assert found.reason, start
        assert found.hint, start


def test_what_real_vllm_started_is_not_refused(starts):
    wrongly = [
        s.source
        for s in starts
        if not s.failed
        and s.consistent
        and s.kv_cache_tokens
        and not plan_memory(s.engine).feasible
    ]
    assert wrongly == []
