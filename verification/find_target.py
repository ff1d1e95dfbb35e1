"""Targets by name: every module of ``verification/targets`` is one."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.registry import find_module, module_names
from dynosim.planning.exports.base import Candidate
from dynosim.verification.target import Target, TargetOptions

_PACKAGE = "dynosim.verification.targets"


def target_names() -> list[str]:
    """Returns the names of all targets, as the command line spells them."""
    return [name.replace("_", "-") for name in module_names(_PACKAGE)]


def find_target(name: str, options: TargetOptions) -> Target:
    """Returns a target, which has started nothing yet; UserError for a name that is none."""
    target: Target = _module(name).make(options)
    return target


def refusal(name: str, candidate: Candidate) -> UserError | None:
    """Returns why a target cannot run a candidate, as far as that is known before it tries.

    A target's module may have ``check(candidate)``, which raises it.
    """
    check: Callable[[Candidate], None] | None = getattr(_module(name), "check", None)
    if check is None:
        return None
    try:
        check(candidate)
    except UserError as error:
        return error
    return None


def _module(name: str) -> ModuleType:
    if name.replace("_", "-") not in target_names():
        raise unknown_name("target", name, target_names(), where="--target")
    return find_module(_PACKAGE, "target", name)
