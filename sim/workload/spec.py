"""The flat options of a workload, in ``vllm bench serve``'s spelling, and the rules among them."""

from __future__ import annotations

import operator
import typing
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from dynosim.hardware_models.engine_args import Positive
from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.sim.workload.client import ClientPolicy
from dynosim.sim.workload.lengths import RangeConvention
from dynosim.sim.workload.network import NetworkOptions

ALIASES = {
    "isl": "random_input_len",
    "osl": "random_output_len",
    "input_len": "random_input_len",
    "output_len": "random_output_len",
    "prefix_len": "random_prefix_len",
}


@dataclass(frozen=True, kw_only=True)
class WorkloadSpec(NetworkOptions, ClientPolicy):
    """What arrives: a trace, or synthetic requests; ``None`` means not given.

    A trace is told by ``trace``; without it requests are synthetic, by default 1,000 of 1,024
    input and 128 output tokens, all at once. ``request_rate`` paces requests and
    ``max_concurrency`` caps those in flight; both together act as in ``vllm bench serve``.
    """

    trace: str | None = None
    """File to replay, plain or .gz."""
    trace_format: str | None = None
    """Name of the trace's format; by default told from its content."""
    trace_block_tokens: Positive | None = None
    """Prompt tokens that one hash id of the trace covers; by default the format's own."""
    rate_scale: Annotated[float, Gt(0)] = 1.0
    """Divides the times between a trace's arrivals."""
    jitter_ticks: bool = False
    """Spread a trace's requests that share a tick at random over the tick."""
    limit: Positive | None = None
    """Replay only the first N requests of a trace."""

    random_input_len: Positive | None = None
    """Mean prompt tokens, shared prefix not included."""
    random_output_len: Positive | None = None
    """Mean answer tokens."""
    random_range_ratio: Annotated[float, Ge(0), Le(1)] | None = None
    """Uniform lengths: the half-width as a share of the mean (vllm convention)."""
    random_range_convention: RangeConvention = "vllm"
    """``vllm``: L(1-r) to L(1+r); ``inferencex``: rL to L."""
    random_input_cv: Annotated[float, Ge(0)] | None = None
    """Lognormal prompt lengths with this coefficient of variation."""
    random_output_cv: Annotated[float, Ge(0)] | None = None
    """Lognormal answer lengths with this coefficient of variation."""
    lengths_from: str | None = None
    """Draw (input, output) lengths from this trace or CSV of lengths."""

    random_prefix_len: Annotated[int, Ge(0)] = 0
    """Prompt tokens before ``random_input_len`` that requests share."""
    num_prefixes: Positive = 1
    """Number of different shared prefixes."""
    prefix_zipf: Annotated[float, Ge(0)] = 0.0
    """Zipf exponent of the prefixes' popularity; 0 is uniform."""
    prefix_block_tokens: Positive = 16
    """Tokens of a prefix block: shared prefixes are shared in whole blocks of this size."""

    request_rate: Annotated[float, Gt(0)] | None = None
    """Requests per second; by default infinite, all at once."""
    request_rates: str | None = None
    """Requests per second from given seconds on, as in "0:2, 60:20, 300:2"."""
    burstiness: Annotated[float, Gt(0)] = 1.0
    """Shape of the gamma arrivals: 1 Poisson, less is burstier, inf is constant."""
    max_concurrency: Positive | None = None
    """At most this many requests in flight."""
    num_turns: Positive = 1
    """Requests of a session: each comes when the one before it was answered, on top of it."""
    num_clients: Positive | None = None
    """Clients that requests are drawn to come from; by default each session is one."""
    think_time_s: Annotated[float, Ge(0)] = 0.0
    """Seconds between an answer and the session's next request."""
    num_prompts: Positive | None = None
    """Number of requests; by default 1000, or all of a trace."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of all random streams."""

    @property
    def client(self) -> ClientPolicy:
        """What clients do when an answer does not come."""
        return ClientPolicy(**{f.name: getattr(self, f.name) for f in fields(ClientPolicy)})

    def given(self, name: str) -> bool:
        """Returns whether option ``name`` differs from its default."""
        return bool(getattr(self, name) != DEFAULTS[name])


DEFAULTS = {field.name: field.default for field in fields(WorkloadSpec)}

PREFIX_ONLY = ("num_prefixes", "prefix_zipf", "prefix_block_tokens")
RANGE = ("random_range_ratio",)
CV = ("random_input_cv", "random_output_cv")
LENGTHS = ("random_input_len", "random_output_len", *RANGE, *CV)
PACING = ("request_rate", "burstiness")

# (options, options that exclude them, what to do instead)
EXCLUDE: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("trace",), (*LENGTHS, "lengths_from"), "to draw lengths from a file use lengths_from alone"),
    (("trace",), ("num_turns", "think_time_s"), "a trace brings its own turns"),
    (("trace",), PACING, "to change a trace's rate use rate_scale"),
    (("trace",), ("random_prefix_len", *PREFIX_ONLY), "a trace brings its own prefixes"),
    (("lengths_from",), LENGTHS, "lengths_from already gives the lengths"),
    (("request_rates",), ("trace", "request_rate"), "request_rates tells all arrivals"),
    (RANGE, CV, "lengths are either uniform or lognormal"),
)
# (options, the option they need)
NEED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("trace_format", "trace_block_tokens", "rate_scale", "jitter_ticks", "limit"), "trace"),
    (("random_range_convention",), "random_range_ratio"),
    (("burstiness",), "request_rate"),
    (("num_prefixes", "prefix_zipf"), "random_prefix_len"),
    (("think_time_s",), "num_turns"),
    (("network_tls",), "network_connection"),
    (("client_cancel_after_s",), "client_cancel_share"),
    (("num_clients",), "client_max_in_flight"),
    (("client_backoff_s", "client_backoff_max_s", "client_jitter"), "client_retries"),
)


def check_spec(spec: WorkloadSpec) -> None:
    """Raises ``UserError`` for every value out of range, else for every pair of options that
    contradict each other."""
    errors = list(_out_of_range(spec)) or list(_contradictions(spec))
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)


def _out_of_range(spec: WorkloadSpec) -> Iterator[UserError]:
    # What users write is validated where it enters; this serves specs made in Python.
    for name, kind in typing.get_type_hints(WorkloadSpec, include_extras=True).items():
        value = getattr(spec, name)
        for sign, holds, limit in _bounds(kind) if value is not None else ():
            if not holds(value, limit):
                message = f"`{name}` is {value}"
                yield UserError(message, where=name, hint=f"allowed: {sign} {limit}")


def _bounds(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    for part in (kind, *typing.get_args(kind)):
        for bound in getattr(part, "__metadata__", ()):
            match bound:
                case Ge(ge=ge):
                    yield ">=", operator.ge, ge
                case Gt(gt=gt):
                    yield ">", operator.gt, gt
                case Le(le=le):
                    yield "<=", operator.le, le


def _contradictions(spec: WorkloadSpec) -> Iterator[UserError]:
    for options, others, hint in EXCLUDE:
        for one in filter(spec.given, options):
            for other in filter(spec.given, others):
                yield UserError(f"`{one}` and `{other}` exclude each other", where=other, hint=hint)
    for options, needed in NEED:
        paced = needed == "request_rate" and (spec.given("trace") or spec.given("request_rates"))
        if not spec.given(needed) and not paced:
            for one in filter(spec.given, options):
                hint = f"give {needed}, or leave out {one}"
                yield UserError(f"`{one}` needs `{needed}`", where=one, hint=hint)
    if None not in (spec.limit, spec.num_prompts) and spec.limit != spec.num_prompts:
        message = f"`limit` is {spec.limit} but `num_prompts` is {spec.num_prompts}"
        yield UserError(message, where="limit", hint="either gives the number of trace requests")
