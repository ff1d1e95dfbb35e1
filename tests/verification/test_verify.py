"""``dynosim verify`` from end to end, on engines whose speed is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynosim.commands import verify
from dynosim.search.saved_run import load_run
from dynosim.sim.deployment import Deployment
from dynosim.verification.target import TargetOptions
from stand_ins import ScaledEngines

Use = Callable[[ScaledEngines], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Makes engines the target that the command finds."""

    def put(engines: ScaledEngines) -> None:
        def find(name: str, options: TargetOptions) -> ScaledEngines:
            return engines

        monkeypatch.setattr(verify, "find_target", find)
        monkeypatch.setattr(verify, "refusal", lambda name, candidate: None)

    return put


def by_size(deployment: Deployment, measurements: int) -> float:
    """One GPU is a quarter slower than predicted, two are a fifth faster."""
    return {1: 1.25, 2: 0.8}[deployment.tensor_parallel_size]


def flat(text: str) -> str:
    """A message without the breaks that the width of the terminal put in."""
    return " ".join(text.split())


def rows_of(pick: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["metric"]: row for row in pick["metrics"]}


VERIFY = ("--target", "stand-in", "--jobs", "1", "--json")


def test_known_factors_are_recovered(run: Path, dynosim: Callable[..., Any], use: Use) -> None:
    engines = ScaledEngines(by_size, facts={"kv_cache_tokens": 404_576.0})
    use(engines)
    words = ("--top", "4", "--dominated", "1", "--rescore", "none")
    answer = dynosim("verify", run, *VERIFY, *words)
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["requests"] == 40
    trials = {t.number: t for t in load_run(run).result.trials}
    for pick in found["picks"]:
        factor = by_size(trials[pick["trial"]].deployment, 0)
        assert pick["repeats"] == 3
        rows = rows_of(pick)
        for metric in ("output_tok_s_per_gpu", "request_throughput", "output_tok_s_per_user"):
            assert rows[metric]["error"] == pytest.approx(factor - 1, abs=1e-4), metric
        for kind in ("ttft", "tpot", "e2el"):
            for statistic in ("mean", "median", "p90", "p95", "p99"):
                row = rows[f"{statistic}_{kind}_ms"]
                assert row["error"] == pytest.approx(1 / factor - 1, abs=1e-4)
                assert row["repeat_spread"] == pytest.approx(0, abs=1e-6)
    assert {p["engine"][0]["logged"] for p in found["picks"]} == {404_576.0}
    on_disk = json.loads((run / "verification" / "verification.json").read_text("utf-8"))
    assert on_disk == found


def test_rounds_are_interleaved_and_engines_start_anew(
    run: Path, dynosim: Callable[..., Any], use: Use
) -> None:
    engines = ScaledEngines(by_size)
    use(engines)
    assert dynosim("verify", run, *VERIFY, "--top", "2", "--rescore", "none").code == 0
    first, second = engines.started[:2]
    assert first != second
    assert engines.started == [first, second] * 3


def test_the_frontier_is_scored_anew_with_what_was_measured(
    run: Path, dynosim: Callable[..., Any], use: Use
) -> None:
    use(ScaledEngines(by_size))
    found = json.loads(dynosim("verify", run, *VERIFY, "--top", "4").out)
    before = {t.number: t for t in load_run(run).result.trials}
    # Two GPUs are 1.25 * 1.25 times better against one than predicted.
    assert found["rescored"]["method"].startswith("every simulated trial")
    left = found["rescored"]["left"]
    assert all(before[n].deployment.tensor_parallel_size == 1 for n in left)
    assert found["verdict"]["winner"] == found["verdict"]["recommended"]
    order = {row["metric"]: row for row in found["order"]}
    assert order["output_tok_s_per_user"]["kendall_tau"] == 1.0


def test_a_changed_winner(run: Path, dynosim: Callable[..., Any], use: Use) -> None:
    knee = load_run(run).result.knee
    assert knee is not None
    use(ScaledEngines(lambda d, n: 1.6 if d == knee.deployment else 1.0))
    answer = dynosim("verify", run, *VERIFY, "--top", "4", "--rescore", "none")
    found = json.loads(answer.out)
    assert answer.code == 0
    assert found["verdict"]["word"] == "changed"
    assert found["verdict"]["winner"] != knee.number
    assert found["regret"]["pick"] == knee.number
    assert 0 < found["regret"]["share"] < 1


def test_drifting_repeats_are_inconclusive(
    run: Path, dynosim: Callable[..., Any], use: Use
) -> None:
    use(ScaledEngines(lambda d, n: 1.0 + 0.1 * (n // 2)))
    found = json.loads(dynosim("verify", run, *VERIFY, "--top", "2", "--rescore", "none").out)
    assert found["verdict"]["word"] == "inconclusive"
    assert "quieter machine" in found["verdict"]["reasons"][0]


class Killed(BaseException):
    """The end of this process, which no handler sees."""


def test_finished_measurements_survive_a_kill_and_are_not_repeated(
    run: Path, dynosim: Callable[..., Any], use: Use
) -> None:
    def killed_at_the_fourth(deployment: Deployment, measurements: int) -> float:
        if measurements == 3:
            raise Killed
        return 1.0

    words = ("verify", run, *VERIFY, "--top", "2", "--rescore", "none")
    use(ScaledEngines(killed_at_the_fourth))
    with pytest.raises(Killed):
        dynosim(*words)
    kept = sorted((run / "verification" / "runs").glob("*.json"))
    assert len(kept) == 3
    times = [file.stat().st_mtime_ns for file in kept]
    rest = ScaledEngines(lambda d, n: 1.0)
    use(rest)
    refused = dynosim(*words)
    assert refused.code == 2
    assert "already holds 3 measurement(s)" in flat(refused.err)
    answer = dynosim(*words, "--resume")
    assert answer.code == 0, answer.err
    assert rest.measurements == 3
    assert [file.stat().st_mtime_ns for file in kept] == times
    assert [p["repeats"] for p in json.loads(answer.out)["picks"]] == [3, 3]


def test_measurements_of_another_load_or_target_are_not_mixed(
    run: Path, dynosim: Callable[..., Any], use: Use
) -> None:
    use(ScaledEngines(lambda d, n: 1.0))
    words = ("verify", run, "--jobs", "1", "--rescore", "none", "--top", "2", "--repeats", "1")
    assert dynosim(*words, "--target", "stand-in").code == 0
    other = dynosim(*words, "--target", "other", "--resume")
    assert other.code == 2
    assert "holds measurements of another target" in flat(other.err)
    fewer = dynosim(*words, "--target", "stand-in", "--num-prompts", "20", "--resume")
    assert "holds measurements of another load" in flat(fewer.err)
    assert dynosim(*words, "--target", "other", "--overwrite").code == 0


def test_fewer_requests_are_predicted_anew(
    run: Path, dynosim: Callable[..., Any], use: Use
) -> None:
    use(ScaledEngines(by_size))
    words = ("--num-prompts", "25", "--top", "2", "--repeats", "1", "--rescore", "none")
    answer = dynosim("verify", run, *VERIFY, *words)
    found = json.loads(answer.out)
    assert found["requests"] == 25
    for pick in found["picks"]:
        error = rows_of(pick)["mean_ttft_ms"]["error"]
        assert min(abs(error - e) for e in (-0.2, 0.25)) < 1e-4


def test_a_pick_that_does_not_start_is_told_and_left_out(
    run: Path, dynosim: Callable[..., Any], use: Use
) -> None:
    def refuses(deployment: Deployment) -> str | None:
        return "out of memory" if deployment.tensor_parallel_size == 1 else None

    engines = ScaledEngines(by_size, refuses)
    use(engines)
    answer = dynosim("verify", run, *VERIFY, "--top", "5", "--rescore", "none")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    failures = [p["failure"] for p in found["picks"]]
    assert set(failures) == {None, "out of memory"}
    assert all(d.tensor_parallel_size == 2 for d in engines.started)


def test_where_nothing_starts_it_is_an_error(
    run: Path, dynosim: Callable[..., Any], use: Use
) -> None:
    use(ScaledEngines(by_size, lambda d: "no such program"))
    answer = dynosim("verify", run, *VERIFY)
    assert answer.code == 2
    assert "no pick could be measured" in answer.err
    assert "no such program" in answer.err


def test_scored_anew_by_simulation_with_fitted_overheads(
    run: Path, dynosim: Callable[..., Any], use: Use
) -> None:
    use(ScaledEngines(lambda d, n: 1.1))
    words = ("--top", "2", "--rescore", "simulate", "--repeats", "1")
    answer = dynosim("verify", run, *VERIFY, *words)
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["rescored"]["method"].startswith("the short list simulated again")
    assert (run / "verification" / "calibration.yaml").is_file()
    assert found["calibration"][0]["class"] == "vllm 0.19.0 on hopper"


def test_the_screen_and_the_files(run: Path, dynosim: Callable[..., Any], use: Use) -> None:
    use(ScaledEngines(by_size, facts={"kv_cache_tokens": 400_000.0}))
    answer = dynosim("verify", run, *VERIFY[:-1], "--top", "2")
    assert answer.code == 0, answer.err
    assert len(answer.out.splitlines()) <= 30
    assert "Kendall tau" in answer.out
    assert "KV cache, predicted / logged: trial" in answer.out
    assert "verdict: confirmed" in answer.out
    names = {p.name for p in (run / "verification").iterdir()}
    assert {
        "verification.json",
        "verification.html",
        "overlay.png",
        "overlay.svg",
        "calibration.yaml",
        "runs",
        "identity.json",
    } == names - {"logs"}
    page = (run / "verification" / "verification.html").read_text("utf-8")
    assert "<strong>confirmed</strong>" in page
    assert "<svg" in page


def test_nothing_to_measure_on(run: Path, dynosim: Callable[..., Any]) -> None:
    answer = dynosim("verify", run)
    assert answer.code == 2
    assert "where to measure?" in answer.err
    both = dynosim("verify", run, "--target", "x", "--url", "http://localhost:1")
    assert "--target and --url exclude each other" in both.err
    unknown = dynosim("verify", run, "--target", "local-vlm")
    assert unknown.code == 2
    assert "nearest: local-vllm" in unknown.err
    dry = dynosim("verify", run, "--dry-run", "--top", "2")
    assert dry.code == 0
    assert "the run's knee" in dry.out
    assert not (run / "verification").exists()
