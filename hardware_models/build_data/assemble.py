"""From upstream's tables of one GPU and family to the sound rows that each backend ships."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dynosim.hardware_models.build_data import quality
from dynosim.hardware_models.build_data.families import Family
from dynosim.hardware_models.build_data.rows import Group, Rows, shared_positions
from dynosim.hardware_models.build_data.system import System, Wheel
from dynosim.hardware_models.build_data.work import bound_s
from dynosim.hardware_models.timing.tables import Origin


@dataclass(frozen=True)
class Candidate:
    """One group of one backend and version: its good rows, and what speaks against all of them."""

    rows: Rows
    origin: Origin
    fault: str | None = None

    @property
    def name(self) -> str:
        """Backend and version."""
        return f"{self.origin.backend} {self.origin.version}"


@dataclass(frozen=True)
class Rejection:
    """What was left out, for the manifest. ``group`` is empty for single rows of many groups."""

    family: str
    backend: str
    version: str
    group: Group
    rows: int
    reason: str
    replaced_by: str | None = None


Versions = Mapping[str, Mapping[Group, Candidate]]
"""Version, newest first -> its groups."""


@dataclass(frozen=True)
class Assembly:
    """The tables of one GPU and family: per backend the groups it ships, and what was left out."""

    shipped: dict[str, dict[Group, Candidate]] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)


def assemble(wheel: Wheel, system: System, family: Family) -> Assembly:
    """Returns the sound groups of every backend for one GPU and op family.

    A backend ships a group at its current version, or the newest sound one before; where none is
    sound, that of the nearest other backend, recorded as transferred.
    """
    result = Assembly()
    read = {
        backend: _candidates(wheel, system, family, backend, result.rejected)
        for backend in family.backends
    }
    judged: dict[str, Versions] = {}
    for backend, versions in read.items():
        others = _others(read, backend)
        newest = _newest(versions)
        judged[backend] = {
            version: {
                group: _judged_gain(
                    _judged_floor(candidate, group, family, system, others),
                    group,
                    family,
                    {**newest, **groups},
                    others,
                )
                for group, candidate in groups.items()
            }
            for version, groups in versions.items()
        }
    for backend in family.backends:
        groups = _chosen(judged, backend, family, result.rejected)
        if groups:
            result.shipped[backend] = groups
    return result


def _candidates(
    wheel: Wheel, system: System, family: Family, backend: str, rejected: list[Rejection]
) -> dict[str, dict[Group, Candidate]]:
    """Returns the groups of each version, newest first, without rows that are bad by themselves."""
    found: dict[str, dict[Group, Candidate]] = {}
    for files in family.versions(wheel, system.gpu, backend):
        version = files[0].version
        rows, foreign = family.read(files, system)
        if foreign:
            note = f"measured on another GPU than {system.device}, or on one that is not named"
            rejected.append(Rejection(family.name, backend, version, (), foreign, note))
        origin = Origin(
            source="measured",
            backend=backend,
            version=version,
            device=system.device,
            upstream=", ".join(m.upstream for m in files),
        )
        clean = _without_bad_rows(rows, origin, family, rejected)
        found[version] = {
            group: _judged_use(Candidate(part, origin), group, family, system, rejected)
            for group, part in clean.groups(family.group_keys)
        }
    return found


def _without_bad_rows(
    rows: Rows, origin: Origin, family: Family, rejected: list[Rejection]
) -> Rows:
    for reason, mask in (
        ("no positive finite latency", quality.unmeasured),
        (f"over {quality.SPIKE_RATIO:g} times both neighbours on its curve", quality.spikes),
        (
            f"over {quality.BUMP_RATIO:g} times what stands on both sides on its curve",
            lambda rows: quality.bumps(rows, family.bump_rows),
        ),
    ):
        bad = mask(rows)
        if bad.any():
            count, version = int(bad.sum()), origin.version
            rejected.append(Rejection(family.name, origin.backend, version, (), count, reason))
            rows = rows.take(~bad)
    return rows


def _judged_use(
    candidate: Candidate,
    group: Group,
    family: Family,
    system: System,
    rejected: list[Rejection],
) -> Candidate:
    """Returns the candidate without rows that beat the GPU's peak, or faulty where many do."""
    bound = bound_s(candidate.rows, family.name, system)
    if bound is None:
        return candidate
    fault = quality.impossible_group(candidate.rows, bound)
    if fault is not None:
        return replace(candidate, fault=fault)
    beyond = quality.impossible(candidate.rows, bound)
    if not beyond.any():
        return candidate
    origin = candidate.origin
    note = "utilisation above 1: faster than the GPU's peak allows"
    rejected.append(
        Rejection(family.name, origin.backend, origin.version, group, int(beyond.sum()), note)
    )
    return replace(candidate, rows=candidate.rows.take(~beyond))


def _others(read: Mapping[str, Versions], backend: str) -> list[dict[Group, Candidate]]:
    """Returns, of each other backend, every group at the newest version that has it."""
    return [_newest(versions) for other, versions in read.items() if other != backend]


def _newest(versions: Versions) -> dict[Group, Candidate]:
    merged: dict[Group, Candidate] = {}
    for groups in versions.values():
        merged = {**groups, **merged}
    return merged


def _judged_floor(
    candidate: Candidate,
    group: Group,
    family: Family,
    system: System,
    others: Iterable[Mapping[Group, Candidate]],
) -> Candidate:
    """Returns the candidate, faulty where its launch floor is far above every other backend's."""
    if candidate.fault is not None:
        return candidate
    pairs = []
    for groups in others:
        other = groups.get(group)
        if other is not None and other.fault is None:
            pair = _floors_s(candidate.rows, other.rows, family, system)
            if pair is not None:
                pairs.append(pair)
    return replace(candidate, fault=quality.slow_launch(pairs))


def _judged_gain(
    candidate: Candidate,
    group: Group,
    family: Family,
    own: Mapping[Group, Candidate],
    others: Iterable[Mapping[Group, Candidate]],
) -> Candidate:
    """Returns the candidate, faulty where its weights gain nothing by their fewer bits."""
    plain = own.get((quality.PLAIN, *group[1:]))
    if candidate.fault is not None or family.tokens is None or group[0] == quality.PLAIN:
        return candidate
    if plain is None or plain.fault is not None:
        return candidate
    dtype = family.keys[0]
    over_plain = _ratios(candidate.rows.without(dtype), plain.rows.without(dtype), family.tokens)
    over_others, noticeable = [], []
    for groups in others:
        other = groups.get(group)
        if other is not None and other.fault is None:
            over_others.append(_ratios(candidate.rows, other.rows, family.tokens, least_s=0.0))
            noticeable.append(
                _ratios(candidate.rows, other.rows, family.tokens, quality.NOTICEABLE_S)
            )
    fault = quality.slower_than_plain(over_plain, over_others)
    if fault is None and family.shares_kernels:
        fault = quality.slower_than_all(noticeable)
    return replace(candidate, fault=fault)


def _ratios(
    own: Rows, other: Rows, tokens: str, least_s: float = quality.STREAMING_S
) -> NDArray[np.float64]:
    """Returns own over other seconds of shared shapes with few tokens that take the other long."""
    in_own, in_other = shared_positions(own, other)
    mine, theirs = own.take(in_own), other.take(in_other)
    reads = quality.streaming(mine.columns[tokens], theirs.latency_s, least_s)
    ratios: NDArray[np.float64] = mine.latency_s[reads] / theirs.latency_s[reads]
    return ratios


def _floors_s(own: Rows, other: Rows, family: Family, system: System) -> tuple[float, float] | None:
    """Returns both launch floors, over shared shapes, or each over its own where too few are."""
    in_own, in_other = shared_positions(own, other)
    for a, b in ((own.take(in_own), other.take(in_other)), (own, other)):
        floors = []
        for rows in (a, b):
            bound = bound_s(rows, family.name, system, cached_bytes=0)
            floors.append(None if bound is None else quality.launch_floor_s(rows, bound))
        if floors[0] is not None and floors[1] is not None:
            return floors[0], floors[1]
    return None


def _chosen(
    judged: Mapping[str, Versions], backend: str, family: Family, rejected: list[Rejection]
) -> dict[Group, Candidate]:
    """Returns the groups that ``backend`` ships, each from its best source."""
    shipped: dict[Group, Candidate] = {}
    faulty: dict[Group, Candidate] = {}
    for groups in judged[backend].values():
        for group, candidate in groups.items():
            if candidate.fault is None and group not in shipped:
                shipped[group] = _after(candidate, faulty.get(group))
            elif group not in shipped:
                faulty.setdefault(group, candidate)
    for group in sorted(faulty, key=str):
        bad = faulty[group]
        if group not in shipped:
            substitute = _nearest(judged, backend, group, shipped)
            if substitute is not None:
                shipped[group] = _transferred(substitute, bad)
        rejected.append(
            Rejection(
                family=family.name,
                backend=backend,
                version=bad.origin.version,
                group=group,
                rows=len(bad.rows),
                reason=bad.fault or "",
                replaced_by=shipped[group].name if group in shipped else None,
            )
        )
    return shipped


def _after(candidate: Candidate, bad: Candidate | None) -> Candidate:
    """Returns an older version's group that stands in for a faulty newer one."""
    if bad is None:
        return candidate
    rejected = f"{bad.name}: {bad.fault}"
    return replace(candidate, origin=replace(candidate.origin, rejected=rejected))


def _transferred(candidate: Candidate, bad: Candidate) -> Candidate:
    origin = replace(
        candidate.origin,
        source="transferred",
        transferred_from=candidate.name,
        rejected=f"{bad.name}: {bad.fault}",
    )
    return replace(candidate, origin=origin)


def _nearest(
    judged: Mapping[str, Versions], backend: str, group: Group, own: Mapping[Group, Candidate]
) -> Candidate | None:
    """Returns the sound group of the backend whose other groups are timed most like this one's.

    Backends without a group in common come last, the one with more shapes first.
    """
    found = []
    for other, versions in judged.items():
        sound = [g[group] for g in versions.values() if group in g and g[group].fault is None]
        if other != backend and sound:
            theirs = _newest(versions)
            found.append((_distance(own, theirs), -len(sound[0].rows), other, sound[0]))
    return min(found, key=lambda entry: entry[:3])[3] if found else None


def _distance(own: Mapping[Group, Candidate], theirs: Mapping[Group, Candidate]) -> float:
    """Returns the mean factor, as |log2|, between the groups that both have sound."""
    factors = []
    for group in own.keys() & theirs.keys():
        if own[group].origin.source == "measured" and theirs[group].fault is None:
            a, b = own[group].rows, theirs[group].rows
            in_a, in_b = shared_positions(a, b)
            factors.append(np.abs(np.log2(a.latency_s[in_a] / b.latency_s[in_b])))
    together = np.concatenate(factors) if factors else np.zeros(0)
    return float(np.mean(together)) if len(together) else np.inf
