"""Targets by name: every module of ``verification/targets`` is one."""

from __future__ import annotations

from dynosim.hardware_models.errors import unknown_name
from dynosim.hardware_models.registry import find_module, module_names
from dynosim.verification.target import Target, TargetOptions

_PACKAGE = "dynosim.verification.targets"


def target_names() -> list[str]:
    """Returns the names of all targets, as the command line spells them."""
    return [name.replace("_", "-") for name in module_names(_PACKAGE)]


def find_target(name: str, options: TargetOptions) -> Target:
    """Returns a target, which has started nothing yet; UserError for a name that is none."""
    if name.replace("_", "-") not in target_names():
        raise unknown_name("target", name, target_names(), where="--target")
    target: Target = find_module(_PACKAGE, "target", name).make(options)
    return target
