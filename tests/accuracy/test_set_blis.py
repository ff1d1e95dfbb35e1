"""inference-sim's vLLM stages as cases: flags, rates, prompts that repeat, and what peers said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dynosim.accuracy.case import Case
from dynosim.accuracy.repeated_prompts import RepeatedPrompts
from dynosim.accuracy.run import run_case
from dynosim.accuracy.sets import blis
from dynosim.sim.workload.columns import Workload


@pytest.fixture(scope="module")
def cases(shared_data: Path) -> dict[str, Case]:
    return {case.row: case for case in blis.read(shared_data)}


def load_of(case: Case) -> Workload:
    assert isinstance(case.workload, Workload)
    return case.workload


def test_prompts_share_their_groups_blocks_and_no_others() -> None:
    prompts = RepeatedPrompts(
        groups=2, prompts_per_group=2, system_tokens=40, prompt_tokens=70, output_tokens=5
    )
    # 70 tokens are 4 full blocks, 40 are 2: prompts 0 and 1 share two, 2 and 3 two others.
    ids = prompts.block_ids()
    assert ids.shape == (4, 4)
    assert (ids[0, :2] == ids[1, :2]).all()
    assert (ids[2, :2] == ids[3, :2]).all()
    assert len(np.unique(ids)) == 2 * 2 + 4 * 2
    load = prompts.at_constant_rate(2.0, 3.0)
    assert load.arrival_s.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert load.prefix_ids.reshape(6, 4)[4].tolist() == ids[0].tolist()


def test_every_row_is_a_case_or_left_out_with_a_reason(
    shared_data: Path, cases: dict[str, Case]
) -> None:
    left_out = blis.dropped(shared_data)
    assert len(cases) + sum(left_out.values()) == blis.rows(shared_data)
    assert left_out["requests failed in overload"] == 2


def test_a_training_stage_has_its_own_flags_and_lengths(cases: dict[str, Case]) -> None:
    case = cases["blis_vllm_h100.csv.gz:2"]
    flags, load = case.deployment, load_of(case)
    assert (flags.model, flags.gpu, flags.tensor_parallel_size) == (
        "meta-llama/Llama-2-7b-hf",
        "h100_sxm",
        1,
    )
    assert (flags.max_num_seqs, flags.max_num_batched_tokens, flags.max_model_len) == (
        128,
        2048,
        4096,
    )
    assert len(load) == 3000
    assert load.arrival_s[1] == pytest.approx(0.2)
    assert set(load.input_tokens.tolist()) == {592}
    assert set(load.output_tokens.tolist()) == {247}
    assert case.assumed == ()
    # (E2E - TTFT) / 246, not the recorded ITL, which counts two chunks a token.
    assert case.measured["mean_tpot_ms"] == pytest.approx((1810.32 - 25.0366) / 246, rel=1e-4)


def test_other_stages_say_what_they_assume(cases: dict[str, Case]) -> None:
    case = next(
        c for c in cases.values() if "Scout" in c.group and c.tags["workload"] == "reasoning"
    )
    assert load_of(case).arrival_s[1] == pytest.approx(1.0)
    assert blis.ASSUMED_RATE in case.assumed
    # Its layers keep KV in two ways, so that the printed tokens / 16 are not vLLM's blocks.
    assert case.deployment.num_gpu_blocks_override is None
    gpus = {c.deployment.gpu for c in cases.values()}
    assert gpus == {"h100_sxm", "a100_sxm", "l40s"}


def test_no_stage_stands_twice(cases: dict[str, Case]) -> None:
    e2e = [round(case.measured["mean_e2el_ms"], 2) for case in cases.values()]
    assert len(e2e) == len(set(e2e))


def test_peers_predicted_the_same_rows(shared_data: Path, cases: dict[str, Case]) -> None:
    peers = blis.peers(shared_data)
    assert peers.keys() <= cases.keys()
    assert len(peers) >= 55
    of_row = peers["blis_vllm_h100.csv.gz:16"]
    assert "blis-roofline" in of_row
    assert of_row["blis-roofline"].keys() <= {
        f"{s}_{m}_ms" for s in ("mean", "p90", "p99") for m in ("ttft", "e2el", "tpot")
    }


def test_whole_prompts_are_found_in_the_cache(cases: dict[str, Case]) -> None:
    outcome = run_case(cases["blis_vllm_h100.csv.gz:14"])
    # 35 of 36 blocks (the last token is always computed) but for 45 first prompts of 4,800.
    assert outcome.predicted["prefix_hit_rate"] == pytest.approx(35 * 16 / 574, abs=0.01)
    assert abs(outcome.error("mean_tpot_ms")) < 0.1
