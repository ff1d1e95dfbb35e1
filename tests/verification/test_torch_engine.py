"""The built-in engine's answers are those of a plain forward pass, however they were batched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from dynosim.sim.engine.limits import EngineLimits
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.stepped.clocks import Replayed
from dynosim.verification.stepped.engine import EngineStep
from dynosim.verification.stepped.run import run_stepped
from dynosim.verification.torch_engine.attention import (
    Attention,
    FlashAttention,
    Layout,
    attention_for,
)
from dynosim.verification.torch_engine.decode_graphs import DecodeGraphs
from dynosim.verification.torch_engine.decoder import Decoder
from dynosim.verification.torch_engine.decoder_config import DecoderConfig, parse_decoder_config
from dynosim.verification.torch_engine.engine import BuiltinEngine
from dynosim.verification.torch_engine.request import Request
from dynosim.verification.torch_engine.runner import TorchRunner
from dynosim.verification.torch_engine.scheduler import Batch
from dynosim.verification.torch_engine.weights import Weights, checkpoint_weights, random_weights
from plain_decoder import greedy, logits

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'dynosim[measure]'"
)

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 300,
    "max_position_embeddings": 256,
}
MODELS = {
    "llama": SMALL,
    "llama, biased and tied": SMALL | {"attention_bias": True, "tie_word_embeddings": True},
    "llama 3": SMALL
    | {
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "qwen2": SMALL | {"model_type": "qwen2"},
    "qwen3": SMALL | {"model_type": "qwen3"},
}


def widened(weights: Weights) -> Weights:
    """Makes random weights tell tokens well apart, so that no rounding decides between two."""
    for layer in weights.layers:
        for matrix in (layer.qkv, layer.output, layer.gate_up, layer.down):
            matrix.mul_(8.0)
    weights.embedding.mul_(40.0)
    return weights


def engine_of(
    config: DecoderConfig,
    weights: Weights,
    limits: EngineLimits,
    num_blocks: int,
    attention: Attention | None = None,
    graphs: bool = False,
) -> tuple[BuiltinEngine, Answers]:
    heads = (config.num_heads, config.num_kv_heads, config.head_dim)
    attention = attention or attention_for(torch, torch.device("cpu"), limits.block_size, heads)
    decoder = Decoder(torch, config, weights, attention, max_positions=256)
    pages = torch.full(
        (config.num_layers, 2, num_blocks + 1, limits.block_size, heads[1], heads[2]), torch.nan
    )
    pages[:, :, -1] = 0.0
    made = DecodeGraphs(torch, decoder, pages, (1, 2, 4), (4, 16), repeated) if graphs else None
    answers = Answers(TorchRunner(torch, decoder, pages, made))
    return BuiltinEngine(limits, num_blocks, answers), answers


def repeated(compute: Callable[[], Any]) -> tuple[Callable[[], object], Any]:
    """Stands in for a CUDA graph: computes again from the same tensors into the same tensor."""
    answer = compute().clone()
    return (lambda: answer.copy_(compute())), answer


class Answers:
    """A runner that keeps what it sampled."""

    def __init__(self, runner: TorchRunner) -> None:
        self._runner = runner
        self.tokens: dict[int, list[int]] = {}

    def run(self, batch: Batch) -> dict[Request, int]:
        sampled = self._runner.run(batch)
        for request, token in sampled.items():
            self.tokens.setdefault(request.number, []).append(token)
        return sampled

    def facts(self) -> Any:
        return self._runner.facts()


def prompts(random: Random, lengths: list[int]) -> list[list[int]]:
    """Returns prompts, every other one with a beginning that they share."""
    shared = [random.randrange(300) for _ in range(20)]
    made = []
    for place, length in enumerate(lengths):
        own = [random.randrange(300) for _ in range(length)]
        made.append(own if place % 2 else [*shared, *own])
    return made


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("caching", [True, False], ids=["prefixes cached", "not cached"])
def test_answers_are_those_of_a_plain_forward_pass(name: str, caching: bool) -> None:
    config = parse_decoder_config(MODELS[name], name)
    weights = widened(random_weights(torch, config, torch.device("cpu"), torch.float32))
    asked = prompts(Random(7), [3, 40, 1, 25, 17, 9])
    answers = (12, 20, 5, 16, 1, 9)
    limits = EngineLimits(
        max_num_seqs=4,
        # Prompts go through in chunks beside decodes, and the cache holds few of them at once.
        max_num_batched_tokens=16,
        block_size=4,
        enable_prefix_caching=caching,
    )
    engine, sampled = engine_of(config, weights, limits, num_blocks=18 if caching else 24)
    plan = LoadPlan(
        prompts=tuple(asked), output_tokens=answers, send_s=None, max_concurrency=len(asked)
    )
    run = run_stepped(plan, engine, Replayed([]))
    assert any(step.preempted for step in run.steps), "the cache is too large to tell"
    assert any(step.chunks and step.decodes for step in run.steps)
    if caching:
        first = [w.context_tokens for step in run.steps for w in step.chunks if w.request == 2]
        assert first[0] == 20, "the beginning that is shared was found"
    for number, (prompt, answer) in enumerate(zip(asked, answers, strict=True)):
        assert sampled.tokens[number] == greedy(torch, config, weights, prompt, answer)


@pytest.mark.parametrize("name", MODELS)
def test_a_plain_forward_pass_is_that_of_hugging_face(name: str) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install transformers"
    )
    content = MODELS[name]
    made = transformers.AutoConfig.for_model(**content, attn_implementation="eager")
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(made).eval()
    state = {key: value.detach() for key, value in model.state_dict().items()}
    config = parse_decoder_config(content, name)
    weights = checkpoint_weights(torch, config, state)
    tokens = [Random(5).randrange(300) for _ in range(90)]
    with torch.no_grad():
        theirs = model(torch.tensor([tokens])).logits[0]
    torch.testing.assert_close(logits(torch, config, weights, tokens), theirs, atol=2e-5, rtol=1e-4)


# --- what only a GPU runs, with stand-ins for its kernels ---------------------------------------


def packed_attention(
    q: Any,
    k: Any,
    v: Any,
    starts_q: Any,
    starts_k: Any,
    max_q: int,
    max_k: int,
    dropout: float,
    is_causal: bool,
    debug: bool,
    *,
    seqused_k: Any,
    block_table: Any = None,
) -> tuple[Any]:
    """FlashAttention's contract, sequence by sequence."""
    parts = []
    for place, used in enumerate(seqused_k.tolist()):
        assert used <= max_k
        new = q[starts_q[place] : starts_q[place + 1]].transpose(0, 1)
        assert new.shape[1] <= max_q
        if block_table is None:
            first = int(starts_k[place])
            own = [part[first : first + used] for part in (k, v)]
        else:
            own = [part[block_table[place]].flatten(0, 1)[:used] for part in (k, v)]
        mask = torch.ones(new.shape[1], used, dtype=torch.bool).tril(used - new.shape[1])
        keys, values = (part.transpose(0, 1).unsqueeze(0) for part in own)
        attend = torch.nn.functional.scaled_dot_product_attention
        seen = attend(new.unsqueeze(0), keys, values, attn_mask=mask, enable_gqa=True)
        parts.append(seen[0].transpose(0, 1))
    return (torch.cat(parts),)


def with_flash(kernel: Any) -> Any:
    """Returns a PyTorch whose FlashAttention is ``kernel``."""
    aten = SimpleNamespace(_flash_attention_forward=kernel)
    return SimpleNamespace(**vars(torch) | {"ops": SimpleNamespace(aten=aten)})


@pytest.mark.parametrize("pages", [True, False], ids=["block table", "gathered"])
@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
def test_the_path_of_a_gpu_answers_alike(pages: bool, graphs: bool) -> None:
    config = parse_decoder_config(SMALL, "x")
    weights = widened(random_weights(torch, config, torch.device("cpu"), torch.float32))
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=16, block_size=4)
    flash = FlashAttention(with_flash(packed_attention), reads_pages=pages)
    engine, sampled = engine_of(config, weights, limits, 18, flash, graphs)
    asked, answers = prompts(Random(7), [3, 40, 1, 25]), (12, 20, 5, 16)
    plan = LoadPlan(prompts=tuple(asked), output_tokens=answers, send_s=None, max_concurrency=3)
    run_stepped(plan, engine, Replayed([]))
    assert engine.facts()["decode_graphs"] == ("captured" if graphs else "none")
    for number, (prompt, answer) in enumerate(zip(asked, answers, strict=True)):
        assert sampled.tokens[number] == greedy(torch, config, weights, prompt, answer)


def test_the_fastest_attention_is_used_that_answers_rightly() -> None:
    def refuses(*arguments: Any, block_table: Any = None, **options: Any) -> Any:
        if block_table is not None:
            raise RuntimeError("Paged KV cache block size must be divisible by 256")
        return packed_attention(*arguments, **options)

    def errs(*arguments: Any, **options: Any) -> Any:
        return (2 * packed_attention(*arguments, **options)[0] + 1,)

    found = [
        str(attention_for(on_cpu(kernel), SimpleNamespace(type="cuda"), 4, (4, 2, 16)))
        for kernel in (packed_attention, refuses, errs)
    ]
    assert found == ["flash, block table", "flash, blocks gathered", "by sequence"]


def on_cpu(kernel: Any) -> Any:
    """Returns a PyTorch with that FlashAttention, whose GPU is the CPU."""
    here = with_flash(kernel)
    for name in ("randn", "randperm", "tensor", "arange", "ones"):
        setattr(here, name, partial(made_on_cpu, getattr(torch, name)))
    return here


def made_on_cpu(make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return make(*arguments, **options | {"device": "cpu"})


def test_what_computes_is_said() -> None:
    config = parse_decoder_config(SMALL, "x")
    weights = random_weights(torch, config, torch.device("cpu"), torch.float32)
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=16, block_size=4)
    facts = engine_of(config, weights, limits, num_blocks=24)[0].facts()
    assert facts["kv_cache_tokens"] == 25 * 4
    assert facts["device"] == "cpu"
    assert facts["dtype"] == "float32"
    assert facts["torch"] == str(torch.__version__)


def test_a_step_says_who_got_a_token_and_what_was_computed() -> None:
    config = parse_decoder_config(SMALL, "x")
    weights = random_weights(torch, config, torch.device("cpu"), torch.float32)
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=8, block_size=4)
    engine, _ = engine_of(config, weights, limits, num_blocks=24)
    engine.add(0, [1, 2, 3], 2)
    engine.add(1, list(range(10)), 1)
    first, second = engine.step(), engine.step()
    assert [(w.request, w.tokens, w.context_tokens) for w in first.work] == [(0, 3, 0), (1, 5, 0)]
    assert first.new_tokens == {0: 1}
    assert [(w.request, w.tokens, w.context_tokens) for w in second.work] == [(0, 1, 3), (1, 5, 5)]
    assert second.finished == (0, 1)
    assert isinstance(second, EngineStep)


def test_gathered_attention_by_hand() -> None:
    # Two tokens in blocks 1 and 0, of one element each: scores 0 and 0, so their mean.
    attend = attention_for(torch, torch.device("cpu"), 1, (1, 1, 1))
    keys = torch.zeros(3, 1, 1, 1)
    values = torch.tensor([5.0, 1.0, 100.0]).view(3, 1, 1, 1)
    layout = Layout(
        slots=torch.tensor([0]),
        table=torch.tensor([[1, 0]], dtype=torch.int32),
        lengths=torch.tensor([2], dtype=torch.int32),
        longest=2,
    )
    assert attend(torch.ones(1, 1, 1), keys, values, layout).item() == pytest.approx(3.0)
