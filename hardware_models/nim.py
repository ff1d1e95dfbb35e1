"""NVIDIA NIM as a profile: its environment variables, as arguments of the engine it contains.

NIM is no engine of its own: a container runs TensorRT-LLM (1.x) or vLLM or SGLang (1.x and 2.x).
``data/nim.yaml`` says what each name means, with its source.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.errors import InputErrors, UserError

NAME = "nim"

_DEVICES = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_SWITCHES = {"1": True, "true": True, "0": False, "false": False}
_PARALLEL = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size"}


@cache
def _card() -> dict[str, Any]:
    return read_yaml(DATA / "nim.yaml")


def default_engine() -> str:
    """Returns the backend that runs in a NIM where nothing says otherwise."""
    return str(_card()["default_engine"]["value"])


def from_nim_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of :class:`EngineArgs` that a NIM's environment sets, ``backend`` always.

    Names without the prefix ``NIM_`` are left alone, but for the GPUs that a container may see:
    without a tensor-parallel size they are all used. Raises UserError, with all problems at once,
    for names that NIM does not know (and the nearest that it does), for values out of range, for
    names that contradict each other, and for options that change the speed and are not simulated.
    """
    env = {name: text.strip() for name, text in environment.items() if text.strip()}
    errors: list[UserError] = []
    found: dict[str, tuple[str, Any]] = {}
    for name, text in env.items():
        try:
            if name.startswith("NIM_"):
                _read(name, text, found)
        except UserError as error:
            errors.append(error.at(name))
    fields = {field: value for field, (_, value) in found.items()}
    for rule in (_set_engine, _set_profile, _set_devices, _set_pool):
        try:
            rule(fields, env)
        except UserError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors, where="NIM environment")
    return fields


def _read(name: str, text: str, found: dict[str, tuple[str, Any]]) -> None:
    """Adds what one variable sets: field -> (variable, value)."""
    card = _card()
    row = card["fields"].get(name)
    if row is None:
        if name not in _known_names():
            raise _unknown(name)
        off = card["not_modelled"].get(name, text)
        is_off = text == off or (off == "0" and _SWITCHES.get(text.lower()) is False)
        if not is_off:
            raise UserError(f"{text!r} is not simulated", hint="leave it out")
        return
    value = _KINDS[row["kind"]](text, row)
    other, before = found.setdefault(row["field"], (name, value))
    if before != value:
        raise UserError(f"{text} contradicts {other}={before}", hint="set one of the two")


def _known_names() -> set[str]:
    card = _card()
    lists = (card["fields"], card["combined"], card["not_modelled"], card["without_effect"])
    return {name for names in lists for name in names}


def _unknown(name: str) -> UserError:
    near = difflib.get_close_matches(name, sorted(_known_names()), n=3, cutoff=0.6)
    hint = f"nearest: {', '.join(near)}" if near else "see hardware_models/data/nim.yaml"
    return UserError("NIM has no such variable that is known here", hint=hint)


# --- values -------------------------------------------------------------------------------------


def _count(text: str, row: dict[str, Any]) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{text!r} is not a number") from None


def _share(text: str, row: dict[str, Any]) -> float:
    value = _number(text)
    if not 0.0 < value <= 1.0:
        raise UserError(f"{text} is not a share above 0 and up to 1", hint="write 0.9 for 90 %")
    return value


def _switch(text: str, row: dict[str, Any]) -> bool:
    if text.lower() not in _SWITCHES:
        raise UserError(f"{text!r} is neither on nor off", hint=f"allowed: {', '.join(_SWITCHES)}")
    return _SWITCHES[text.lower()]


def _word(text: str, row: dict[str, Any]) -> str:
    words: dict[str, str] = row["words"]
    if text.lower() not in words:
        raise UserError(f"unknown value {text!r}", hint=f"allowed: {', '.join(words)}")
    return words[text.lower()]


def _model(text: str, row: dict[str, Any]) -> str:
    return text.removeprefix("hf://")


_KINDS: dict[str, Callable[[str, dict[str, Any]], Any]] = {
    "count": _count,
    "share": _share,
    "switch": _switch,
    "word": _word,
    "model": _model,
}


# --- variables that are read together -----------------------------------------------------------


def _set_engine(fields: dict[str, Any], env: Mapping[str, str]) -> None:
    """Says which engine it is: the profile's, else the one that alone reads a name given."""
    card = _card()
    profile = env.get("NIM_MODEL_PROFILE", "")
    named = card["engines"].get(profile.partition("-")[0])
    rows = card["fields"]
    only = {name: rows[name]["engine"] for name in env if "engine" in rows.get(name, ())}
    backend = fields["backend"] = named or next(iter(only.values()), default_engine())
    for field, row in card["defaults"].get(backend, {}).items():
        fields.setdefault(field, row["value"])
    for name, engine in only.items():
        if engine != backend:
            raise UserError(f"only {engine} reads it, but {profile} is {named}", where=name)


def _set_profile(fields: dict[str, Any], env: Mapping[str, str]) -> None:
    """Takes precision and parallel sizes from a readable profile name: ``vllm-fp8-tp2-pp1``."""
    card, where = _card(), "NIM_MODEL_PROFILE"
    engine, *words = env.get(where, "default").split("-")
    if engine == "default":
        return
    if engine not in card["engines"]:
        raise UserError(
            f"{env[where]!r} does not say what it is",
            where=where,
            hint="give the readable name (list-model-profiles), as vllm-bf16-tp2-pp1",
        )
    for word in words:
        if size := re.fullmatch(r"(tp|pp)(\d+)", word):
            field, value = _PARALLEL[size[1]], int(size[2])
            if fields.setdefault(field, value) != value:
                raise UserError(f"{word} contradicts {field} {fields[field]}", where=where)
        elif word in card["other_precisions"]:
            raise UserError(
                f"{word} weights come with a checkpoint of their own",
                where=where,
                hint="name that checkpoint as NIM_MODEL_NAME, and leave the profile out",
            )
        elif card["precisions"].get(word):
            fields["quantization"] = card["precisions"][word]


def _set_devices(fields: dict[str, Any], env: Mapping[str, str]) -> None:
    """Uses the GPUs that the container may see: all of them, where no size is given."""
    for name in _DEVICES:
        text = env.get(name, "all")
        if text in ("all", "none", "void"):
            continue
        seen = len([device for device in text.split(",") if device.strip()])
        stages = fields.get("pipeline_parallel_size", 1)
        tp = fields.setdefault("tensor_parallel_size", max(1, seen // stages))
        if tp * stages > seen:
            raise UserError(
                f"{seen} GPU(s) for {tp} x {stages} of tensor and pipeline parallelism", where=name
            )


def _set_pool(fields: dict[str, Any], env: Mapping[str, str]) -> None:
    """Sizes the KV pool in longest sequences, where memory constraints are relaxed."""
    where = "NIM_NUM_KV_CACHE_SEQ_LENS"
    if where not in env:
        return
    if _SWITCHES.get(env.get("NIM_RELAX_MEM_CONSTRAINTS", "0").lower()) is not True:
        raise UserError(
            "has no effect alone", where=where, hint="set NIM_RELAX_MEM_CONSTRAINTS=1, or neither"
        )
    try:
        sequences = _number(env[where])
    except UserError as error:
        raise error.at(where) from None
    if sequences < 1.0:
        raise UserError(f"{env[where]} holds not even one sequence", where=where, hint="1 or more")
    if "max_model_len" not in fields:
        raise UserError(
            "needs to know the longest sequence", where=where, hint="set NIM_MAX_MODEL_LEN as well"
        )
    # Backends know NIM as a name of theirs.
    from dynosim.hardware_models.backends import get_backend

    tokens = int(sequences * fields["max_model_len"])
    block_size = get_backend(fields["backend"]).block_size
    fields["num_gpu_blocks_override"] = -(-tokens // block_size)
