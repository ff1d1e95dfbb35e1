from dataclasses import dataclass
from enum import Enum


class RequestOutputKind(Enum):
    DELTA = 1


@dataclass
class SamplingParams:
    max_tokens: int
    ignore_eos: bool
    temperature: float
    detokenize: bool
    output_kind: RequestOutputKind
