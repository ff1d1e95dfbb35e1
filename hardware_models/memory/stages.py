"""Which layers a pipeline stage holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dynosim.hardware_models.llm.architecture import LayerGroup, LlmArchitecture


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One pipeline stage: its layers, and whether it holds the embedding and the output head."""

    layers: tuple[tuple[LayerGroup, int], ...]
    first: bool
    last: bool


def pipeline_stages(model: LlmArchitecture, stages: int) -> tuple[Stage, ...]:
    """Returns the stages that vLLM cuts a model into.

    Each takes an equal number of layers; layers left over go one each to the last stages but
    the very last, which holds the output head. Kinds of layers are taken to be spread evenly.
    """
    if stages == 1:
        every = tuple((group, group.count) for group in model.layers)
        return (Stage(layers=every, first=True, last=True),)
    order, start, found = _spread(model), 0, []
    for index, size in enumerate(_sizes(model.num_layers, stages)):
        held = Counter(order[start : start + size])
        start += size
        layers = tuple((model.layers[i], n) for i, n in sorted(held.items()))
        found.append(Stage(layers=layers, first=index == 0, last=index == stages - 1))
    return tuple(found)


def _sizes(layers: int, stages: int) -> list[int]:
    sizes = [layers // stages] * stages
    for back in range(2, layers % stages + 2):
        sizes[-back] += 1
    return sizes


def _spread(model: LlmArchitecture) -> list[int]:
    """Indices of the layer groups, each group's layers spread evenly over the depth."""
    places = [
        ((j + 0.5) / group.count, i)
        for i, group in enumerate(model.layers)
        for j in range(group.count)
    ]
    return [i for _, i in sorted(places)]
