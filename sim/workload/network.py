"""The way between clients and the server: round trips, bandwidth, connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt

from dynosim.hardware_models.arrays import FloatArray, IntArray

PROMPT_BYTES_PER_TOKEN = 4.5
"""Bytes of JSON that a prompt token takes: about four characters of English and some escaping
(OpenAI, "What are tokens and how to count them?", 2024: about four characters a token)."""
CHUNK_BYTES = 250.0
"""Bytes of one server-sent event with one token, as vLLM 0.19's chat completions stream them."""


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """How clients reach the server; by default they stand beside it."""

    network_rtt_ms: Annotated[float, Ge(0)] = 0.0
    """Round trip between client and server."""
    network_mbit_s: Annotated[float, Gt(0)] | None = None
    """Bandwidth of each client, either way; by default unlimited."""
    network_connection: Literal["pooled", "per_request"] = "pooled"
    """Connections are kept open, or each request opens its own: a round trip for TCP."""
    network_tls: bool = True
    """A new connection takes one more round trip, for TLS 1.3."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """Seconds that requests and tokens are on their way.

    A request reaches the server after ``setup_s`` and half a round trip, once its last byte has
    been sent at ``bytes_s``; a token reaches the client half a round trip and its own bytes after
    it was written. Streams are taken to keep up: no client is slower than its tokens come.
    """

    rtt_s: float
    setup_s: float
    bytes_s: float

    def up_s(self, input_tokens: IntArray | int) -> FloatArray:
        """Returns the seconds from a client's send to the server's last byte of the request."""
        sending_s = PROMPT_BYTES_PER_TOKEN * np.asarray(input_tokens) / self.bytes_s
        return np.asarray(self.setup_s + 0.5 * self.rtt_s + sending_s, dtype=np.float64)

    @property
    def down_s(self) -> float:
        """The seconds from a token's writing to its arrival at the client."""
        return 0.5 * self.rtt_s + CHUNK_BYTES / self.bytes_s


def network_of(options: NetworkOptions) -> Network | None:
    """Returns the network that ``options`` describe, None where it takes no time."""
    rtt_s = options.network_rtt_ms * 1e-3
    if not rtt_s and options.network_mbit_s is None:
        return None
    is_new = options.network_connection == "per_request"
    trips = (1 + options.network_tls) if is_new else 0
    mbit_s = options.network_mbit_s
    return Network(
        rtt_s=rtt_s,
        setup_s=trips * rtt_s,
        bytes_s=np.inf if mbit_s is None else mbit_s * 1e6 / 8,
    )
