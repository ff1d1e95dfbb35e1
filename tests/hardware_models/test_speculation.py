"""What a verification costs, what a draft costs, and where both stop paying."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.speculation import extended, per_position
from dynosim.hardware_models.timing.graphs import graphs_of, multiples
from dynosim.hardware_models.timing.shapes import AttentionShape
from dynosim.hardware_models.timing.speculation import SpeculativeStepTimer
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.hardware_models.timing.verification import flop_per_pair

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
EAGLE3: dict[str, Any] = {"speculative_method": "eagle3", "num_speculative_tokens": 3}
DEPLOYMENTS = [(LLAMA, "h100", 1), ("meta-llama/Llama-3.3-70B-Instruct", "h200", 4)]


def engine(model: str = LLAMA, gpu: str = "h100", **changes: Any) -> ResolvedEngine:
    return resolve_engine(EngineArgs(model=model, gpu=gpu, **changes))


def timer_of(engine: ResolvedEngine) -> SpeculativeStepTimer:
    timer = StepTimer.compile(engine)
    assert isinstance(timer, SpeculativeStepTimer)
    return timer


def step_s(timer: StepTimer, batch: int, context: int = 600) -> float:
    """Seconds of a decode-only step of sequences with ``context`` tokens each."""
    if isinstance(timer, SpeculativeStepTimer):
        return float(timer.decode_steps_s(batch, np.array([batch * context]))[0])
    return timer.decode_line(batch, batch * context)[0]


def gain(batch: int, length: float, speculating: StepTimer, plain: StepTimer) -> float:
    """How many times the tokens per second of a plain engine."""
    return length * step_s(plain, batch) / step_s(speculating, batch)


# --- where it pays ----------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "gpu", "tp"), DEPLOYMENTS)
def test_the_gain_is_largest_alone_and_turns_into_a_loss(model: str, gpu: str, tp: int) -> None:
    plain = StepTimer.compile(engine(model, gpu, tensor_parallel_size=tp))
    speculating = engine(model, gpu, tensor_parallel_size=tp, **EAGLE3)
    assert speculating.speculation is not None
    length = speculating.speculation.mean_acceptance_length
    assert length == pytest.approx(2.60, abs=0.01)
    timer = timer_of(speculating)
    gains = [gain(batch, length, timer, plain) for batch in (1, 8, 32, 64, 128, 256, 1024)]
    assert gains == sorted(gains, reverse=True)
    assert 1.5 < gains[0] < 2.4
    assert gains[3] > 1.1
    assert gains[4] == pytest.approx(1.0, abs=0.1)
    assert gains[5] < 0.8


@pytest.mark.parametrize("method", ["ngram", "eagle", "eagle3"])
@pytest.mark.parametrize("batch", [1, 8, 64, 512])
def test_drafts_that_are_never_accepted_are_a_pure_loss(method: str, batch: int) -> None:
    plain = StepTimer.compile(engine())
    for drafts in (1, 3, 5):
        timer = timer_of(engine(speculative_method=method, num_speculative_tokens=drafts))
        assert step_s(timer, batch) > step_s(plain, batch)


def test_more_drafts_never_make_a_step_shorter() -> None:
    for batch in (1, 16, 128):
        steps = [
            step_s(timer_of(engine(**EAGLE3 | {"num_speculative_tokens": k})), batch)
            for k in (1, 2, 4, 8)
        ]
        assert steps == sorted(steps)


def test_published_steps_of_eagle_on_vllm() -> None:
    # PR 16035: Llama 3 8B, one H100, batch 1: 7.77 ms plain; 1.89 tokens in 10.77 ms with 2 drafts,
    # 2.08 tokens in 12.56 ms with 4.
    model = "meta-llama/Meta-Llama-3-8B-Instruct"
    plain = StepTimer.compile(engine(model))
    for drafts, length, published in ((2, 1.89, 1.36), (4, 2.08, 1.29)):
        changes = {"speculative_method": "eagle", "num_speculative_tokens": drafts}
        found = engine(model, **changes)
        assert found.speculation is not None
        assert found.speculation.mean_acceptance_length == pytest.approx(length)
        assert gain(1, length, timer_of(found), plain) == pytest.approx(published, rel=0.12)


# --- the parts --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 300),
    context=st.integers(1, 20_000),
    steps=st.integers(1, 5),
    method=st.sampled_from(["ngram", "eagle3"]),
)
def test_runs_of_steps_lines_and_single_steps_agree(
    batch: int, context: int, steps: int, method: str
) -> None:
    timer = timer_of(engine(speculative_method=method, num_speculative_tokens=3))
    contexts = batch * context + np.arange(steps) * 3 * batch
    tokens = 4 * batch
    single = [timer.step_s(tokens, tokens, 0.0, batch, c) for c in contexts.tolist()]
    np.testing.assert_allclose(timer.decode_steps_s(batch, contexts), single, rtol=1e-12)
    seconds, slope, limit = timer.decode_line(batch, int(contexts[0]))
    for c, expected in zip(contexts.tolist(), single, strict=True):
        if c <= limit:
            assert seconds + slope * (c - contexts[0]) == pytest.approx(expected, rel=1e-9)


def test_attention_reads_the_cache_once_and_computes_in_whole_tiles() -> None:
    # Llama 3.1 8B: 4 query heads share a key-value head; a tile of 64 rows holds 16 tokens of them.
    gqa = AttentionShape(heads=32, kv_heads=8, qk_dim=128, v_dim=128)
    assert flop_per_pair(gqa, 1) == flop_per_pair(gqa, 16) == 2 * 8 * 64 * 256
    assert flop_per_pair(gqa, 17) == 2 * flop_per_pair(gqa, 16)
    # DeepSeek: 128 heads share the latent, so that every further token is another 128 rows.
    mla = AttentionShape(
        heads=128,
        kv_heads=128,
        qk_dim=192,
        v_dim=128,
        kind="mla",
        latent_dim=576,
        latent_value_dim=512,
    )
    assert flop_per_pair(mla, 2) == 2 * flop_per_pair(mla, 1) == 2 * 2 * 128 * (576 + 512)


def test_a_long_context_costs_gqa_nothing_more_and_mla_its_arithmetic() -> None:
    def attention_s(found: ResolvedEngine) -> float:
        timer = StepTimer.compile(found)
        return step_s(timer, 8, 60_000) - step_s(timer, 8, 1)

    changes = {"speculative_method": "ngram", "num_speculative_tokens": 1}
    gqa = [attention_s(engine()), attention_s(engine(**changes))]
    assert gqa[1] == pytest.approx(gqa[0], rel=1e-6)
    deep = {"model": "deepseek-ai/DeepSeek-V3", "gpu": "h200", "tensor_parallel_size": 8}
    mla = [attention_s(engine(**deep)), attention_s(engine(**deep, **changes))]
    assert mla[1] >= mla[0]


def test_a_larger_draft_costs_more() -> None:
    drafts = ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B")
    steps = [
        step_s(
            timer_of(
                engine(
                    "Qwen/Qwen3-32B",
                    speculative_method="draft_model",
                    num_speculative_tokens=3,
                    speculative_model=draft,
                    tensor_parallel_size=2,
                )
            ),
            8,
        )
        for draft in drafts
    ]
    assert steps == sorted(steps)


def test_graphs_hold_whole_verifications() -> None:
    assert multiples((1, 2, 4, 8, 16, 24), 3, 24) == (3, 6, 9, 18, 24)
    graphs, _ = graphs_of(engine(max_num_seqs=16, **EAGLE3))
    assert all(size % 4 == 0 for size in graphs.sizes)
    assert graphs.largest == 2 * 16 * 4


def test_n_gram_lookup_waits_for_the_tokens() -> None:
    def slow_host_s(method: str) -> float:
        found = engine(speculative_method=method, num_speculative_tokens=3, backend_version="0.24")
        slow = found.backend.with_figures({"host_step_s": 1.0, "host_per_sequence_s": 0.0})
        return step_s(timer_of(replace(found, backend=slow)), 8)

    assert slow_host_s("eagle3") == 1.0, "the host's second hides the GPU's work"
    assert slow_host_s("ngram") > 1.0 + step_s(StepTimer.compile(engine()), 8)


# --- memory -----------------------------------------------------------------------------------


def test_a_draft_layer_takes_weights_and_one_more_layer_of_cache() -> None:
    plain, eagle3 = plan_memory(engine()), plan_memory(engine(**EAGLE3))
    # Llama 3.1 8B has 32 layers of 4 KiB a token; the draft's layer is one more.
    assert plain.kv_bytes_per_token == 32 * 4096
    assert eagle3.kv_bytes_per_token == 33 * 4096
    # Layer, fusion, wider inputs and a head of 32,000 tokens: 0.42 billion parameters in bfloat16.
    added = eagle3.weights_bytes - plain.weights_bytes
    assert added == pytest.approx(2 * 0.425e9, rel=0.05)
    blocks = (plain.kv_cache_bytes - added) // (33 * 4096 * 16)
    assert eagle3.num_gpu_blocks == pytest.approx(blocks, abs=1)


def test_a_draft_model_takes_its_weights_and_cache() -> None:
    plain = plan_memory(engine("Qwen/Qwen3-32B", tensor_parallel_size=2))
    drafted = plan_memory(
        engine(
            "Qwen/Qwen3-32B",
            tensor_parallel_size=2,
            speculative_method="draft_model",
            num_speculative_tokens=3,
            speculative_model="Qwen/Qwen3-0.6B",
        )
    )
    small = plan_memory(engine("Qwen/Qwen3-0.6B", tensor_parallel_size=2))
    assert drafted.weights_bytes == pytest.approx(plain.weights_bytes + small.weights_bytes, abs=2)
    assert drafted.kv_bytes_per_token == plain.kv_bytes_per_token + small.kv_bytes_per_token


def test_looking_up_n_grams_takes_no_memory() -> None:
    ngram = plan_memory(engine(speculative_method="ngram", num_speculative_tokens=5))
    assert ngram == plan_memory(engine())


# --- what may be asked ------------------------------------------------------------------------


def test_no_drafts_is_no_speculation() -> None:
    off = engine(speculative_method="eagle3", num_speculative_tokens=0)
    assert off.speculation is None
    assert plan_memory(off) == plan_memory(engine())
    assert type(StepTimer.compile(off)) is StepTimer


def test_acceptance_by_position() -> None:
    assert per_position("[0.73, 0.52,0.35]") == (0.73, 0.52, 0.35)
    assert extended((0.8, 0.4), 4) == pytest.approx((0.8, 0.4, 0.2, 0.1))
    assert extended((0.5,), 3) == pytest.approx((0.5, 0.25, 0.125))
    assert extended((0.9, 0.8, 0.7), 1) == (0.9,)
    assert extended((0.0,), 2) == (0.0, 0.0)
    speculation = engine(**EAGLE3, speculative_acceptance_rate=0.5).speculation
    assert speculation is not None
    assert speculation.acceptance == (0.5, 0.25, 0.125)
    assert speculation.mean_acceptance_length == 1.875


def test_a_model_with_measured_acceptance_has_its_own() -> None:
    speculation = engine("Qwen/Qwen3-8B", **EAGLE3).speculation
    assert speculation is not None
    assert speculation.mean_acceptance_length == pytest.approx(2.26, abs=0.01)


def test_mtp_drafts_one_token_where_nothing_is_said() -> None:
    deep = engine("deepseek-ai/DeepSeek-V3", "h200", speculative_method="mtp")
    assert deep.speculation is not None
    assert deep.speculation.num_tokens == 1
    assert deep.speculation.draft is not None
    assert deep.speculation.draft.is_moe


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"num_speculative_tokens": 3}, "num_speculative_tokens", "without a method"),
        ({"speculative_acceptance_rate": 0.5}, "speculative_acceptance_rate", "without a method"),
        ({"speculative_method": "eagle3"}, "num_speculative_tokens", "3 is usual"),
        ({"speculative_method": "mtp"}, "speculative_method", "no layers"),
        (EAGLE3 | {"pipeline_parallel_size": 2}, "pipeline_parallel_size", "do not go together"),
        (
            {"model": "deepseek-ai/DeepSeek-V3", "data_parallel_size": 2}
            | {"speculative_method": "mtp"},
            "data_parallel_size",
            "share experts",
        ),
        (EAGLE3 | {"max_num_batched_tokens": 3}, "max_num_batched_tokens", "at least 4"),
        (EAGLE3 | {"backend": "static"}, "speculative_method", "vllm"),
        (EAGLE3 | {"speculative_model": "Qwen/Qwen9"}, "speculative_model", "Qwen"),
        (EAGLE3 | {"speculative_method": "draft_model"}, "speculative_model", "small model"),
        (
            EAGLE3 | {"speculative_method": "draft_model", "speculative_model": "Qwen/Qwen3-0.6B"},
            "speculative_model",
            "vocabulary",
        ),
        (
            EAGLE3 | {"speculative_method": "ngram", "speculative_model": "Qwen/Qwen3-0.6B"},
            "speculative_model",
            "leave it out",
        ),
        (
            EAGLE3 | {"speculative_acceptance_rates": "0.3, 0.5"},
            "speculative_acceptance_rates",
            "do not rise",
        ),
        (
            EAGLE3
            | {
                "speculative_acceptance_rates": "0.5",
                "speculative_acceptance_rate": 0.5,
            },
            "speculative_acceptance_rates",
            "keep one",
        ),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(UserError) as refused:
        engine(**changes)
    assert refused.value.where == where
    assert words in str(refused.value)
