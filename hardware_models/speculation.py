"""Speculative decoding: what drafts the tokens, how many, and how many are accepted.

vLLM's words; SGLang's ``--speculative-algorithm`` EAGLE, EAGLE3, NGRAM, STANDALONE (with
``--speculative-num-steps`` k and top-k 1) and TensorRT-LLM's ``speculative_config`` decoding types
Eagle, MTP, NGram, DraftTarget (``max_draft_len`` k) name the same methods.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.llm.architecture import (
    LayerGroup,
    LlmArchitecture,
    Mixer,
    Quantization,
)
from dynosim.hardware_models.llm.catalog import get_model

_FUSED_STATES = {"eagle": 2, "eagle3": 3, "mtp": 2}
"""Hidden vectors that a draft head joins into one: the token's and the target's (EAGLE, MTP); three
of the target's (EAGLE-3)."""


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """What an engine drafts with.

    ``acceptance`` are the shares of verifications that accept at least 1, 2, ... drafts, shape
    (``num_tokens``,). ``draft`` is the model that drafts, None for n-gram lookup. ``fused_states``
    hidden vectors enter its first layer (0: a model of its own). ``draft_vocab_size`` is what its
    head predicts; ``owns_head`` says that the head is not the target's.
    """

    method: str
    num_tokens: int
    acceptance: tuple[float, ...]
    draft: LlmArchitecture | None = None
    fused_states: int = 0
    owns_head: bool = False

    @property
    def query_tokens(self) -> int:
        """Tokens that a verification computes per sequence: the drafts, and the one before them."""
        return self.num_tokens + 1

    @property
    def lookahead_tokens(self) -> int:
        """KV slots beyond those of a verification that a sequence reserves: its next drafts'."""
        return self.num_tokens if self.draft else 0

    @property
    def mean_acceptance_length(self) -> float:
        """Expected tokens of a verification: the accepted drafts and the target's own."""
        return 1.0 + sum(self.acceptance)


@lru_cache(maxsize=1)
def speculation_figures() -> dict[str, Any]:
    """Returns ``data/speculation.yaml``; callers must not change it."""
    return read_yaml(DATA / "speculation.yaml")


def figure(name: str) -> float:
    """Returns one of the figures that hold for all methods."""
    return float(speculation_figures()[name]["value"])


def is_asynchronous(backend: str) -> bool:
    """Whether a backend that schedules asynchronously still does so when it speculates."""
    return bool(speculation_figures()["backends"][backend]["asynchronous"])


def resolve_speculation(args: EngineArgs, model: LlmArchitecture) -> Speculation | None:
    """Returns what ``args`` speculate with, None where they do not (no method, or no drafts).

    Raises UserError, located by argument, for what contradicts itself or the model.
    """
    method, count = args.speculative_method, args.num_speculative_tokens
    if method is None:
        _refuse_orphans(args)
        return None
    if count is None:
        if method != "mtp":
            raise UserError(
                f"{method} needs the number of tokens to draft",
                where="num_speculative_tokens",
                hint="3 is usual",
            )
        count = 1
    if count == 0:
        return None
    _check_engine(args, count)
    if args.data_parallel_size > 1 and model.is_moe:
        raise UserError(
            "speculative decoding is not modelled for data-parallel ranks that share experts",
            where="data_parallel_size",
            hint="use tensor parallelism, or replicas",
        )
    return _with_draft(
        Speculation(
            method=method, num_tokens=count, acceptance=_acceptance(args, model, method, count)
        ),
        args,
        model,
    )


def _refuse_orphans(args: EngineArgs) -> None:
    for name in (
        "num_speculative_tokens",
        "speculative_model",
        "speculative_acceptance_rate",
        "speculative_acceptance_rates",
    ):
        if getattr(args, name):
            raise UserError(
                "given without a method", where=name, hint="set speculative_method, e.g. eagle3"
            )


def _check_engine(args: EngineArgs, count: int) -> None:
    known = tuple(speculation_figures()["backends"])
    if args.backend not in known:
        raise UserError(
            f"{args.backend} has no speculative decoding",
            where="speculative_method",
            hint=f"backends with it: {', '.join(known)}",
        )
    if args.enable_mixed_chunk:
        raise UserError(
            "sglang does not mix decodes into prefill batches when it speculates",
            where="enable_mixed_chunk",
            hint="leave it out",
        )
    if args.pipeline_parallel_size > 1:
        raise UserError(
            "speculative decoding and pipeline parallelism do not go together",
            where="pipeline_parallel_size",
            hint="use tensor parallelism",
        )
    budget = args.max_num_batched_tokens
    if budget is not None and budget <= count:
        raise UserError(
            f"a step of {budget} tokens cannot verify {count} drafts of one sequence",
            where="max_num_batched_tokens",
            hint=f"at least {count + 1}",
        )


# --- acceptance -------------------------------------------------------------------------------


def _acceptance(
    args: EngineArgs, model: LlmArchitecture, method: str, count: int
) -> tuple[float, ...]:
    rate, text = args.speculative_acceptance_rate, args.speculative_acceptance_rates
    if text is None:
        if rate is not None:
            return tuple(rate**position for position in range(1, count + 1))
        row = speculation_figures()["methods"][method]["acceptance"]
        return extended(row.get("models", {}).get(model.name, row["value"]), count)
    if rate is not None:
        raise UserError(
            "one rate and rates by position are both given",
            where="speculative_acceptance_rates",
            hint="keep one of them",
        )
    return extended(per_position(text), count)


def per_position(text: str) -> tuple[float, ...]:
    """Returns the rates in a list such as vLLM logs, "0.73, 0.52, 0.35"; UserError otherwise."""
    try:
        rates = tuple(float(word) for word in text.strip("[] ").split(","))
    except ValueError:
        rates = ()
    falls = all(low <= high for high, low in zip((1.0, *rates), (*rates, 0.0), strict=True))
    if not rates or not falls:
        raise UserError(
            f"found {text!r}",
            where="speculative_acceptance_rates",
            hint='allowed: shares from 1 to 0 that do not rise, as "0.73, 0.52, 0.35"',
        )
    return rates


def extended(rates: tuple[float, ...] | list[float], count: int) -> tuple[float, ...]:
    """Returns the first ``count`` rates; beyond the list they fall as they did at its end."""
    found = [float(rate) for rate in rates[:count]]
    before = found[-2] if len(found) > 1 else 1.0
    ratio = found[-1] / before if before else 0.0
    while len(found) < count:
        found.append(found[-1] * ratio)
    return tuple(found)


# --- the draft --------------------------------------------------------------------------------


def _with_draft(speculation: Speculation, args: EngineArgs, model: LlmArchitecture) -> Speculation:
    method, name = speculation.method, args.speculative_model
    if method in ("ngram", "mtp") and name is not None:
        raise UserError(
            f"{method} drafts without another model", where="speculative_model", hint="leave it out"
        )
    if method == "ngram":
        return speculation
    if method == "draft_model":
        return replace(speculation, draft=_draft_model(name, model), owns_head=True)
    fused = _FUSED_STATES[method]
    if method == "mtp":
        return replace(speculation, draft=_mtp_layer(model), fused_states=fused)
    return replace(
        speculation,
        draft=_eagle_layer(method, model if name is None else _named(name)),
        fused_states=fused,
        owns_head=method == "eagle3",
    )


def _named(name: str) -> LlmArchitecture:
    try:
        return get_model(name)
    except UserError as error:
        raise error.at("speculative_model") from None


def _draft_model(name: str | None, model: LlmArchitecture) -> LlmArchitecture:
    if name is None:
        raise UserError(
            "draft_model needs the model that drafts",
            where="speculative_model",
            hint="a small model of the same family, e.g. Qwen/Qwen3-0.6B for Qwen/Qwen3-32B",
        )
    draft = _named(name)
    if draft.vocab_size != model.vocab_size:
        raise UserError(
            f"{draft.name} has a vocabulary of {draft.vocab_size:,} tokens, "
            f"{model.name} one of {model.vocab_size:,}",
            where="speculative_model",
            hint="a draft must predict the target's tokens",
        )
    return draft


def _mtp_layer(model: LlmArchitecture) -> LlmArchitecture:
    """The last layer once more: its module, which shares embedding and head with the model."""
    if not model.mtp_layers:
        raise UserError(
            f"{model.name} has no layers for multi-token prediction",
            where="speculative_method",
            hint="choose eagle3, draft_model or ngram",
        )
    mixing = [group for group in model.layers if group.mixer in ("attention", "mla")]
    layer = replace(mixing[-1], count=1, window=None)
    return replace(model, layers=(layer,), extra_parameters=0)


def _eagle_layer(method: str, model: LlmArchitecture) -> LlmArchitecture:
    """One dense decoder layer of the target's shape in its base dtype."""
    widths = [group.intermediate_size for group in model.layers if group.intermediate_size]
    width = max(widths, default=round(figure("draft_mlp_ratio") * model.hidden_size))
    mixer: Mixer = "attention" if model.mla is None else "mla"
    vocabulary = model.vocab_size
    if method == "eagle3":
        size = speculation_figures()["methods"]["eagle3"]["draft_vocab_size"]["value"]
        vocabulary = min(vocabulary, size)
    return replace(
        model,
        layers=(LayerGroup(count=1, mixer=mixer, intermediate_size=width),),
        vocab_size=vocabulary,
        moe=None,
        linear_state=None,
        quantization=Quantization(linear=model.base_dtype, experts=model.base_dtype),
        extra_parameters=0,
        is_multimodal=False,
        attention_output_gate=False,
    )
