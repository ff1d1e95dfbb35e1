"""What every target writes from, and how commands are spelt for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.deployment import OF_PREFILL_POOL, Deployment
from dynosim.sim.workload.spec import WorkloadSpec

PORT = 8000
ROUTER_OPTIONS = tuple(f.name for f in fields(RouterOptions) if f.name != "router")
Files = Mapping[str, str]
"""File name -> text."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A deployment with the workload and the limits (ms by kind) that it is meant for.

    ``engine`` has the names looked up and the defaults filled in. Of two pools this is the one that
    decodes, by its plain fields, and ``prefill`` the other; each has its ``role``.
    """

    deployment: Deployment
    engine: ResolvedEngine
    workload: WorkloadSpec
    goodput_ms: Mapping[str, float]
    seed: int
    role: Literal["", "prefill", "decode"] = ""
    prefill: Candidate | None = None

    @property
    def pools(self) -> list[Candidate]:
        """The pools, the one that the plain fields describe first."""
        return [self] if self.prefill is None else [self, self.prefill]

    def key(self, field: str) -> str:
        """Returns the key by which a field of this pool may be set."""
        is_own = self.role == "prefill" and field in OF_PREFILL_POOL
        return f"prefill_{field}" if is_own else field

    @property
    def unscaled(self) -> Candidate:
        """The same without what is said of replicas that come and go."""
        fields = ScalingOptions.__dataclass_fields__
        fixed: dict[str, Any] = {name: field.default for name, field in fields.items()}
        return replace(self, deployment=replace(self.deployment, **fixed))

    def given(self) -> Iterator[tuple[str, Any]]:
        """Yields the engine's fields that differ from their defaults, in their order."""
        for name, field in Deployment.__dataclass_fields__.items():
            value = getattr(self.deployment, name)
            if value != field.default and name not in ROUTER_OPTIONS:
                yield name, value

    def router_options(self) -> dict[str, Any]:
        """Returns the options of the router that differ from their defaults; no engine's affair."""
        fields = Deployment.__dataclass_fields__
        found = {name: getattr(self.deployment, name) for name in ROUTER_OPTIONS}
        return {name: value for name, value in found.items() if value != fields[name].default}

    @property
    def model(self) -> str:
        """The checkpoint's name on the hub, or the path as the user wrote it."""
        return self.deployment.model if "/" in self.deployment.model else self.engine.model.name

    @property
    def backend(self) -> str:
        """The backend's key."""
        return self.engine.backend.name

    @property
    def version(self) -> str:
        """The backend's version."""
        return self.engine.backend.version

    @property
    def label(self) -> str:
        """A name for files and Kubernetes objects: lower case, letters, digits and ``-``."""
        words = "".join(c if c.isalnum() else "-" for c in self.model.rpartition("/")[2].lower())
        return f"{words}-{self.backend}"[:50].strip("-")


def need_backend(candidate: Candidate, target: str, *allowed: str) -> None:
    """Raises UserError where a target cannot launch the candidate's backend."""
    if candidate.backend not in allowed:
        raise UserError(
            f"{target} does not run {candidate.backend}",
            where="backend",
            hint=f"allowed: {', '.join(allowed)}",
        )


def need_one_pool(candidate: Candidate, target: str) -> None:
    """Raises UserError where a target launches no prefill pool."""
    if candidate.role:
        raise UserError(
            f"{target} does not launch two pools",
            where="prefill_replicas",
            hint="leave it out, or export to dynamo",
        )


def command_text(argv: Sequence[str]) -> str:
    """Returns a command with an option a line, quoted for a POSIX shell."""
    lines: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("-") and lines[-1] and not (lines[-1][0] == "python" and word == "-m"):
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(shlex.join(words) for words in lines)


def script(comments: Sequence[str], *commands: Sequence[str]) -> str:
    """Returns a shell script of commands below comments."""
    head = ["#!/bin/sh", *(f"# {line}" for line in comments), "set -eu"]
    return "\n".join([*head, "", *map(command_text, commands)]) + "\n"


def describe(candidate: Candidate) -> list[str]:
    """Returns the comments at the head of a launch file."""
    deployment, engine = candidate.deployment, candidate.engine
    lines = [
        f"{candidate.model} on {engine.gpu.name}, {candidate.backend} {candidate.version}, "
        f"{deployment.gpus_per_replica} GPU(s) a replica"
    ]
    if candidate.role:
        lines[0] += f", {candidate.role} pool"
    if deployment.replicas > 1:
        lines.append(
            f"one of {deployment.replicas} replicas behind a {deployment.router} load balancer"
        )
    options = candidate.router_options()
    if options:
        lines.append("its options: " + ", ".join(f"{k} {v}" for k, v in options.items()))
    return lines
