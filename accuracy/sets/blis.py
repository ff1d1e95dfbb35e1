"""vLLM 0.15.1 on H100, A100 and L40S under inference-perf at constant rates (inference-sim).

Two public repositories of inference-sim (BLIS, Apache-2.0) measured one server after another, each
in one or two stages of a constant rate, with 44 to 50 prompts repeated thousands of times. A case
is a stage. Seven simulators' predictions for the same stages are in the second file: ``peers``.

The first file says more of the stages that both have (training runs): flags, lengths as
tokenised, KV blocks. What the second lacks is taken from runs of the same name: the rates of a
workload, and 28 tokens of chat template over the nominal lengths.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from dynosim.accuracy.case import Case
from dynosim.accuracy.measured_rows import NoCase, Row, group_of
from dynosim.accuracy.measured_rows import rows as rows_of
from dynosim.accuracy.repeated_prompts import RepeatedPrompts
from dynosim.hardware_models.llm.catalog import get_model
from dynosim.sim.deployment import Deployment

TRAINING = "groundtruth/blis_vllm_h100.csv.gz"
PREDICTED = "groundtruth/sim2real_predicted_vs_measured_all.csv.gz"
SOURCES = (TRAINING, PREDICTED)

VERSION = "0.15.1"
MAX_MODEL_LEN = 4096
MAX_NUM_SEQS = 128
TOP_P = ("Llama-3.1-", "Llama-2-", "Llama-4-", "Yi-34B")
"""Checkpoints whose generation_config.json asks for top_p, which vLLM takes as default of requests
that say nothing (they did not); CodeLlama's and Mistral's files ask for nothing."""

FAILED_SHARE = 0.01
"""A stage that lost more of its requests does not tell how long they would have taken."""
GPUS = {"H100": "h100_sxm", "A100-80GB": "a100_sxm", "L40S": "l40s"}

TEMPLATE_TOKENS = 28
"""What 30 training stages counted over system prompt and question (574-593 of 547-566, 786 of 750):
25 to 37 tokens of chat template and tokenisation."""


@dataclass(frozen=True)
class Kind:
    """One of the workloads that inference-sim's runs are named after."""

    rates_req_s: tuple[float, ...]
    stage_s: float
    groups: int
    prompts_per_group: int
    system_tokens: int
    question_tokens: int
    output_tokens: int

    def prompts(self, prompt_tokens: int | None = None) -> RepeatedPrompts:
        """Returns the prompts, of the nominal length with its template by default."""
        nominal = self.system_tokens + self.question_tokens + TEMPLATE_TOKENS
        return RepeatedPrompts(
            groups=self.groups,
            prompts_per_group=self.prompts_per_group,
            system_tokens=self.system_tokens,
            prompt_tokens=prompt_tokens or nominal,
            output_tokens=self.output_tokens,
        )


KINDS = {
    "general": Kind((8.0, 20.0), 600.0, 9, 5, 100, 447, 248),
    "codegen": Kind((5.0, 10.0), 600.0, 11, 4, 100, 466, 247),
    "roleplay": Kind((6.0,), 1200.0, 10, 5, 150, 600, 251),
    "reasoning": Kind((4.0,), 1200.0, 23, 1, 100, 934, 1448),
}
"""As the training runs state them; ``general-lite`` and ``reasoning-lite`` send fewer (18 stages
that give their rate)."""

LITE_RATES = {"general": (2.5, 6.0), "reasoning": (1.0,)}

ASSUMED_RATE = "rate of other runs of that name"
ASSUMED_LENGTH = "template tokens as other runs counted them"


@dataclass(frozen=True)
class Stage:
    """One measured stage of the second file, and what each simulator said of it, in ms."""

    where: str
    experiment: str
    workload: str
    stage: int
    gpu: str
    model: str
    tp: int
    max_num_batched_tokens: int
    measured: Mapping[str, frozenset[float]]
    predicted: Mapping[str, Mapping[str, float]]

    @property
    def kind(self) -> str:
        """The workload that the experiment's name says; its column is wrong in places."""
        return next(kind for kind in KINDS if kind in self.experiment)

    @property
    def e2e_ms(self) -> float:
        """Mean latency, by which one stage is known under several names."""
        return round(max(self.measured["e2e_mean"]), 2)

    @property
    def is_told_once(self) -> bool:
        """Whether the versions of the source differ by roundings only."""
        return all(max(v) <= 1.001 * min(v) for v in self.measured.values())

    @property
    def rates_req_s(self) -> tuple[float, ...]:
        """Rates of the experiment's stages."""
        lite = "lite" in self.experiment
        return LITE_RATES[self.kind] if lite else KINDS[self.kind].rates_req_s


def read(folder: Path) -> list[Case]:
    """Returns the training stages of the first file, then the other stages of the second."""
    return [case for case, _ in _judged(folder) if case is not None]


def dropped(folder: Path) -> dict[str, int]:
    """Returns reason -> rows (first file) or stages (second file) that are no cases."""
    return dict(Counter(reason for case, reason in _judged(folder) if case is None))


def rows(folder: Path) -> int:
    """Returns how many rows and stages there are to judge."""
    return sum(1 for _ in _training_rows(folder)) + len(stages(folder))


def peers(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Returns row -> simulator -> metric -> predicted milliseconds, for the rows of ``read``.

    TPOT is made of TTFT and E2EL as everywhere; a simulator that appears in several versions of
    the source has the prediction that stands last.
    """
    by_e2e = {stage.e2e_ms: stage for stage in stages(folder) if stage.is_told_once}
    found = {}
    for case in read(folder):
        stage = by_e2e.get(round(case.measured["mean_e2el_ms"], 2))
        if stage is not None:
            output = KINDS[stage.kind].output_tokens
            found[case.row] = {
                name: _metrics(values, output) for name, values in stage.predicted.items()
            }
    return found


# --- the first file ---------------------------------------------------------------------------

TRAINING_METRICS = {
    "mean_ttft_ms": "ttft_ms_mean",
    "median_ttft_ms": "ttft_ms_p50",
    "p90_ttft_ms": "ttft_ms_p90",
    "p99_ttft_ms": "ttft_ms_p99",
    "mean_e2el_ms": "e2e_ms",
    "median_e2el_ms": "e2e_ms_p50",
    "p90_e2el_ms": "e2e_ms_p90",
    "p99_e2el_ms": "e2e_ms_p99",
    "mean_tpot_ms": "tpot_ms",
}


def _judged(folder: Path) -> Iterator[tuple[Case | None, str]]:
    """Yields for each row a case, or None and why it is none."""
    seen = set()
    for row in _training_rows(folder):
        seen.add(round(row.number("e2e_ms"), 2))
        try:
            yield _training_case(row), ""
        except NoCase as reason:
            yield None, str(reason)
    blocks = _kv_blocks(folder)
    for stage in stages(folder):
        try:
            yield _case(stage, blocks, seen), ""
            seen.add(stage.e2e_ms)
        except NoCase as reason:
            yield None, str(reason)


def _training_rows(folder: Path) -> Iterator[Row]:
    for row in rows_of(folder / TRAINING):
        if row.text("source") == "blis_training_vllm_h100":
            yield row


def _training_case(row: Row) -> Case:
    failed = row.number("n_fail") / (row.number("n_req") + row.number("n_fail"))
    if failed > FAILED_SHARE:
        raise NoCase("requests failed in overload")
    name = re.sub(r".*default_args/|/results/.*", "", row.text("source_url_or_repo_path"))
    workload = name.rsplit("-", 1)[-1]
    kind = KINDS[workload]
    deployment = _deployment(
        row.text("model"), "H100", row.integer("tp"), row.integer("max_num_batched_tokens")
    )
    prompts = kind.prompts(row.integer("isl"))
    return Case(
        set="blis",
        group=group_of(deployment),
        row=row.where,
        deployment=deployment,
        workload=prompts.at_constant_rate(row.number("requested_rate"), kind.stage_s),
        measured=row.measured(TRAINING_METRICS),
        tags={"load": "open loop", "workload": workload},
    )


def _kv_blocks(folder: Path) -> dict[tuple[str, int, int, int], int]:
    """Returns (model, tp, token budget, output tokens) -> KV blocks of the server.

    The source divides the printed tokens by 16, which is vLLM's count only where all layers keep
    as much: models with windows have a block per kind of layer.
    """
    found = {}
    for row in rows_of(folder / TRAINING):
        model = row.text("model")
        if row.text("total_kv_blocks") and len({g.window for g in get_model(model).layers}) == 1:
            key = (model, row.integer("tp"), row.integer("max_num_batched_tokens"))
            found[*key, row.integer("osl")] = row.integer("total_kv_blocks")
    return found


# --- the second file --------------------------------------------------------------------------


@cache
def stages(folder: Path) -> tuple[Stage, ...]:
    """Returns the stages of the second file, in its order; a row is one metric of a stage."""
    found: dict[tuple[str, str, int], Stage] = {}
    for row in rows_of(folder / PREDICTED):
        key = (row.text("experiment"), row.text("workload"), row.integer("stage_index"))
        stage = found.get(key) or _new_stage(row)
        metric, peer = row.text("metric_name"), row.text("simulator")
        values = stage.measured.get(metric, frozenset()) | {row.number("measured_ms")}
        of_peer = {**stage.predicted.get(peer, {}), metric: row.number("predicted_ms")}
        found[key] = replace(
            stage,
            measured={**stage.measured, metric: values},
            predicted={**stage.predicted, peer: of_peer},
        )
    return tuple(found.values())


def _new_stage(row: Row) -> Stage:
    return Stage(
        where=row.where,
        experiment=row.text("experiment"),
        workload=row.text("workload"),
        stage=row.integer("stage_index"),
        gpu=row.text("hardware"),
        model=row.text("model"),
        tp=row.integer("tp"),
        max_num_batched_tokens=row.integer("max_num_batched_tokens"),
        measured={},
        predicted={},
    )


def _case(stage: Stage, blocks: Mapping[tuple[str, int, int, int], int], seen: set[float]) -> Case:
    if stage.stage < 0:
        raise NoCase("stages pooled")
    if not stage.is_told_once:
        raise NoCase("two sources of one stage disagree")
    if stage.e2e_ms in seen:
        raise NoCase("stands elsewhere already")
    kind = KINDS[stage.kind]
    key = (stage.model, stage.tp, stage.max_num_batched_tokens, kind.output_tokens)
    deployment = _deployment(stage.model, stage.gpu, stage.tp, stage.max_num_batched_tokens)
    deployment = replace(deployment, num_gpu_blocks_override=blocks.get(key))
    values = {name: max(found) for name, found in stage.measured.items()}
    return Case(
        set="blis",
        group=group_of(deployment),
        row=stage.where,
        deployment=deployment,
        workload=kind.prompts().at_constant_rate(stage.rates_req_s[stage.stage], kind.stage_s),
        measured=_metrics(values, kind.output_tokens),
        assumed=(ASSUMED_RATE, ASSUMED_LENGTH),
        tags={"load": "open loop", "workload": stage.kind},
    )


def _metrics(values: Mapping[str, float], output_tokens: int) -> dict[str, float]:
    """Returns the source's milliseconds under the simulator's names; its ITL counts SSE chunks."""
    metrics = {}
    for name, value in values.items():
        kind, statistic = name.split("_")
        if kind != "itl":
            metrics[f"{statistic}_{'e2el' if kind == 'e2e' else kind}_ms"] = value
    decode_ms = metrics["mean_e2el_ms"] - metrics["mean_ttft_ms"]
    return metrics | {"mean_tpot_ms": decode_ms / (output_tokens - 1)}


def _deployment(model: str, gpu: str, tp: int, budget: int) -> Deployment:
    return Deployment(
        model=model,
        gpu=GPUS[gpu],
        backend="vllm",
        backend_version=VERSION,
        tensor_parallel_size=tp,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=budget,
        sampling="top_p" if any(name in model for name in TOP_P) else "greedy",
    )
