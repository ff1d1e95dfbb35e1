"""Where the seconds of an op come from: one Protocol, and the chain of its implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Generic, Literal, Protocol, TypeVar

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.timing.decode_grid import DecodeGrid
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve
from dynosim.hardware_models.timing.shapes import AttentionShape, MoeBlock
from dynosim.hardware_models.timing.tables import MissingTable

Provenance = Literal["measured", "transferred", "roofline"]
T = TypeVar("T")


@dataclass(frozen=True)
class OpSource:
    """Where one op's seconds come from, for the result to say.

    ``measured``: this GPU, this backend, this dtype. ``transferred``: measured with another
    backend, on another GPU or at another shape, scaled by the ratio of rooflines. ``roofline``:
    no such kernel measured; peak rates, with the efficiency of the nearest measured kernel.
    """

    name: str
    source: Provenance
    detail: str


def weakest(sources: Iterable[OpSource]) -> Provenance:
    """Returns the provenance that vouches least among ``sources``, which are not empty."""
    order: tuple[Provenance, ...] = ("roofline", "transferred", "measured")
    return order[min(order.index(source.source) for source in sources)]


@dataclass(frozen=True, eq=False)
class Priced(Generic[T]):
    """An answer and where it comes from."""

    value: T
    source: OpSource


class TimingSource(Protocol):
    """Prices the ops of one GPU; every method raises :class:`MissingTable` if it cannot.

    Token counts and messages are arrays of shape (T,), answers seconds of that shape per op.
    """

    def gemm_s(self, m: FloatArray, n: int, k: int, dtype: str) -> Priced[FloatArray]:
        """Seconds of an (m x k) times (k x n) product with weights in ``dtype``."""
        ...

    def moe_s(self, tokens: FloatArray, block: MoeBlock, dtype: str) -> Priced[FloatArray]:
        """Seconds of one layer's routed experts, tokens counted over the whole group."""
        ...

    def all_reduce_s(self, message_bytes: FloatArray, num_gpus: int) -> Priced[FloatArray]:
        """Seconds of one all-reduce of bfloat16 activations."""
        ...

    def prefill_attention(self, shape: AttentionShape) -> Priced[PrefillCurve]:
        """One layer's prefill attention, as a curve over chunk and prefix."""
        ...

    def decode_attention(self, shape: AttentionShape) -> Priced[DecodeGrid]:
        """One layer's decode attention, as a grid over sequences and context."""
        ...

    def mla_block(
        self, shape: AttentionShape, dtype: str
    ) -> Priced[tuple[PrefillCurve, DecodeGrid]]:
        """One layer's whole latent-attention block, projections included, if measured so."""
        ...


class Chain:
    """Asks several sources in order and returns the first answer.

    ``rest`` makes the sources behind ``first``; it is called when none of those had an answer.
    """

    def __init__(
        self, first: Sequence[TimingSource], rest: Callable[[], Sequence[TimingSource]] = tuple
    ) -> None:
        self._first_sources = first
        self._rest = cache(rest)

    def sources(self) -> Iterator[TimingSource]:
        """Returns the sources in the order in which they are asked."""
        yield from self._first_sources
        yield from self._rest()

    def gemm_s(self, m: FloatArray, n: int, k: int, dtype: str) -> Priced[FloatArray]:
        return self._first(lambda s: s.gemm_s(m, n, k, dtype))

    def moe_s(self, tokens: FloatArray, block: MoeBlock, dtype: str) -> Priced[FloatArray]:
        return self._first(lambda s: s.moe_s(tokens, block, dtype))

    def all_reduce_s(self, message_bytes: FloatArray, num_gpus: int) -> Priced[FloatArray]:
        return self._first(lambda s: s.all_reduce_s(message_bytes, num_gpus))

    def prefill_attention(self, shape: AttentionShape) -> Priced[PrefillCurve]:
        return self._first(lambda s: s.prefill_attention(shape))

    def decode_attention(self, shape: AttentionShape) -> Priced[DecodeGrid]:
        return self._first(lambda s: s.decode_attention(shape))

    def mla_block(
        self, shape: AttentionShape, dtype: str
    ) -> Priced[tuple[PrefillCurve, DecodeGrid]]:
        return self._first(lambda s: s.mla_block(shape, dtype))

    def _first(self, ask: Callable[[TimingSource], Priced[T]]) -> Priced[T]:
        missing: list[str] = []
        for source in self.sources():
            try:
                return ask(source)
            except MissingTable as reason:
                missing.append(str(reason))
        raise MissingTable("; ".join(missing))
