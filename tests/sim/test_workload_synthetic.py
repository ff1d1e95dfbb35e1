"""Generators: their statistics, vLLM's and InferenceX's conventions, and common random numbers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.hardware_models.errors import UserError
from dynosim.sim.random_streams import stream
from dynosim.sim.workload.arrivals import paced_arrivals
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.lengths import (
    LENGTH_COLUMNS,
    fixed_lengths,
    lognormal_lengths,
    read_lengths,
    uniform_lengths,
)
from dynosim.sim.workload.shared_prefixes import zipf_popularity
from dynosim.sim.workload.spec import WorkloadSpec

INF = math.inf


def rng() -> np.random.Generator:
    return stream(7, "test")


def build(**options: object) -> Workload:
    return build_workload(WorkloadSpec(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_arrivals_have_the_rate_and_the_variation_of_their_shape(burstiness: float) -> None:
    gaps = np.diff(paced_arrivals(40_000, 5.0, burstiness, rng()))
    assert gaps.mean() == pytest.approx(1 / 5.0, rel=1e-3)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.03)


def test_poisson_counts_vary_as_their_mean() -> None:
    arrival_s = paced_arrivals(50_000, 10.0, 1.0, rng())
    counts = np.bincount(arrival_s.astype(int))[:-1]
    assert counts.var() / counts.mean() == pytest.approx(1.0, rel=0.05)


def test_infinite_burstiness_is_a_constant_pace() -> None:
    np.testing.assert_allclose(paced_arrivals(5, 2.0, INF, rng()), [0, 0.5, 1, 1.5, 2])


def test_an_infinite_rate_sends_everything_at_once() -> None:
    assert paced_arrivals(4, INF, 1.0, rng()).tolist() == [0, 0, 0, 0]


@given(st.integers(1, 50), st.floats(0.01, 1e4), st.floats(1e-4, 1e4), st.integers(0, 9))
def test_arrivals_are_sorted_from_zero_within_n_gaps(
    n: int, rate: float, burstiness: float, seed: int
) -> None:
    arrival_s = paced_arrivals(n, rate, burstiness, stream(seed, "arrivals"))
    assert arrival_s[0] == 0
    assert (np.diff(arrival_s) >= 0).all()
    assert arrival_s[-1] <= n / rate * (1 + 1e-9)


@pytest.mark.parametrize(("rate", "burstiness"), [(0.0, 1.0), (math.nan, 1.0), (1.0, -1.0)])
def test_a_pace_that_is_not_positive_is_refused(rate: float, burstiness: float) -> None:
    with pytest.raises(UserError, match="allowed: a number > 0"):
        paced_arrivals(3, rate, burstiness, rng())


def test_fixed_lengths() -> None:
    assert fixed_lengths(3, 128).tolist() == [128, 128, 128]


def test_uniform_lengths_of_vllm_keep_the_mean() -> None:
    drawn = uniform_lengths(100_000, 1024, 0.5, rng())
    assert (drawn.min(), drawn.max()) == (512, 1536)
    assert drawn.mean() == pytest.approx(1024, rel=0.005)


def test_uniform_lengths_of_inferencex_lie_below() -> None:
    drawn = uniform_lengths(100_000, 1000, 0.8, rng(), convention="inferencex")
    assert (drawn.min(), drawn.max()) == (800, 1000)
    assert drawn.mean() == pytest.approx(900, rel=0.005)


def test_uniform_lengths_are_rounded_outwards_as_in_vllm_and_never_zero() -> None:
    assert set(uniform_lengths(2000, 5, 0.25, rng()).tolist()) == {3, 4, 5, 6, 7}
    assert set(uniform_lengths(2000, 1, 0.9, rng()).tolist()) == {1, 2}


@pytest.mark.parametrize(
    ("ratio", "convention"), [(1.0, "vllm"), (-0.1, "vllm"), (0.0, "inferencex"), (0.5, "sglang")]
)
def test_a_ratio_outside_its_convention_is_refused(ratio: float, convention: str) -> None:
    with pytest.raises(UserError, match="allowed"):
        uniform_lengths(3, 10, ratio, rng(), convention=convention)  # type: ignore[arg-type]


def test_lognormal_lengths_have_the_mean_and_variation_asked_for() -> None:
    drawn = lognormal_lengths(200_000, 800, rng(), cv=1.2)
    assert drawn.mean() == pytest.approx(800, rel=0.01)
    assert drawn.std() / drawn.mean() == pytest.approx(1.2, rel=0.03)
    assert np.median(drawn) == pytest.approx(800 / math.sqrt(1 + 1.2**2), rel=0.01)


def test_lognormal_sigma_is_that_of_the_logarithm() -> None:
    drawn = lognormal_lengths(100_000, 5000, rng(), sigma=0.5)
    assert np.log(drawn).std() == pytest.approx(0.5, rel=0.01)
    assert lognormal_lengths(3, 70, rng(), cv=0.0).tolist() == [70, 70, 70]


@pytest.mark.parametrize("kwargs", [{}, {"cv": 1.0, "sigma": 1.0}, {"cv": -1.0}])
def test_lognormal_needs_one_spread(kwargs: dict[str, float]) -> None:
    with pytest.raises(UserError, match="one of them"):
        lognormal_lengths(3, 70, rng(), **kwargs)


@pytest.mark.parametrize("pair", LENGTH_COLUMNS)
def test_lengths_are_drawn_in_pairs_from_a_file(tmp_path: Path, pair: tuple[str, str]) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text(f"other,{pair[0]},{pair[1]}\nx,10,1\nx,20,2\nx,30,3\n")
    load = build(lengths_from=str(path), num_prompts=3000)
    assert (load.input_tokens == 10 * load.output_tokens).all()
    assert np.bincount(load.output_tokens)[1:] == pytest.approx(1000, rel=0.1)


def test_a_file_without_lengths_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"lengths\.csv:1: no columns of lengths"):
        read_lengths(path)
    path.write_text("isl,osl\n1,0\n")
    with pytest.raises(UserError, match=r"lengths\.csv:2: `osl` is 0"):
        read_lengths(path)


def test_zipf_popularity_falls_with_rank() -> None:
    np.testing.assert_allclose(zipf_popularity(3, 1.0), np.array([6, 3, 2]) / 11)
    np.testing.assert_allclose(zipf_popularity(4, 0.0), 0.25)


def test_one_shared_prefix_precedes_every_prompt() -> None:
    load = build(random_input_len=100, random_prefix_len=40, num_prompts=3)
    assert load.input_tokens.tolist() == [140, 140, 140]
    assert load.prefix_block_tokens == 16
    assert load.prefix_ids.tolist() == [0, 1] * 3  # 40 tokens fill two blocks of 16
    # Nine blocks a prompt, of which the two shared ones hit in the second and third.
    assert load.describe()["ideal_prefix_hit_share_blocks"] == pytest.approx(4 / 27)


def test_prefix_groups_are_as_popular_as_asked() -> None:
    options = {"random_prefix_len": 32, "num_prefixes": 3, "num_prompts": 20_000}
    load = build(**options, prefix_zipf=1.0)
    groups = np.bincount(load.prefix_ids[::2] // 2) / len(load)
    np.testing.assert_allclose(groups, np.array([6, 3, 2]) / 11, atol=0.01)
    even = build(**options)
    np.testing.assert_allclose(np.bincount(even.prefix_ids[::2] // 2) / len(even), 1 / 3, atol=0.01)


def test_defaults_are_those_of_vllm_bench_serve() -> None:
    load = build()
    assert len(load) == 1000
    assert set(load.input_tokens.tolist()) == {1024}
    assert set(load.output_tokens.tolist()) == {128}
    assert not load.arrival_s.any()
    assert load.max_concurrency is None


def test_a_closed_loop_has_a_cap_and_no_pace() -> None:
    load = build(max_concurrency=8, num_prompts=80)
    assert load.max_concurrency == 8
    assert not load.arrival_s.any()


VARIED = {
    "random_range_ratio": 0.5,
    "random_prefix_len": 64,
    "num_prefixes": 9,
    "request_rate": 2.0,
    "num_prompts": 200,
    "seed": 5,
}


def test_another_rate_scales_the_same_arrivals_of_the_same_requests() -> None:
    slow, fast = build(**VARIED), build(**VARIED | {"request_rate": 8.0})
    np.testing.assert_allclose(slow.arrival_s, 4 * fast.arrival_s)
    for column in ("input_tokens", "output_tokens", "prefix_ids"):
        np.testing.assert_array_equal(getattr(slow, column), getattr(fast, column))


@pytest.mark.parametrize(
    ("change", "untouched"),
    [
        ({"burstiness": 0.5}, ["input_tokens", "output_tokens", "prefix_ids"]),
        ({"random_output_len": 50}, ["arrival_s", "input_tokens", "prefix_ids"]),
        ({"random_input_len": 50}, ["arrival_s", "output_tokens", "prefix_ids"]),
        ({"num_prefixes": 2}, ["arrival_s", "input_tokens", "output_tokens"]),
        ({"max_concurrency": 4}, ["arrival_s", "input_tokens", "output_tokens", "prefix_ids"]),
    ],
)
def test_changing_one_knob_does_not_reshuffle_the_others(
    change: dict[str, object], untouched: list[str]
) -> None:
    before, after = build(**VARIED), build(**VARIED | change)
    for column in untouched:
        np.testing.assert_array_equal(getattr(before, column), getattr(after, column))


def test_more_prompts_extend_the_same_requests() -> None:
    few, many = build(**VARIED), build(**VARIED | {"num_prompts": 300})
    for column in ("input_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(few, column), getattr(many, column)[:200])
    ratio = many.arrival_s[1:200] / few.arrival_s[1:]
    np.testing.assert_allclose(ratio, ratio[0])


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    one, two, other = build(**VARIED), build(**VARIED), build(**VARIED | {"seed": 6})
    for column in ("arrival_s", "input_tokens", "output_tokens", "prefix_ids"):
        assert getattr(one, column).tobytes() == getattr(two, column).tobytes()
        assert getattr(one, column).tobytes() != getattr(other, column).tobytes()


def test_streams_differ_by_purpose() -> None:
    assert stream(1, "a").random() != stream(1, "b").random()
    assert stream(1, "a").random() == stream(1, "a").random()
