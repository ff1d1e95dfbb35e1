"""An NVIDIA NIM: the environment of its container, the reverse of ``hardware_models/nim.py``."""

from __future__ import annotations

from typing import Any

from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.planning.exports.base import (
    PORT,
    Candidate,
    Files,
    describe,
    need_backend,
    need_one_pool,
    script,
)

_PROFILE = ("tensor_parallel_size", "pipeline_parallel_size", "quantization")
_UNSAID = {"gpu", "model", "backend", "backend_version", "replicas", "router", "calibration"}
_UNSAID |= {"kernel_tables", "expert_distribution", "sampling"}


def write(candidate: Candidate) -> Files:
    """Returns the environment file of the container and the command that starts it.

    UserError for fields that no variable of a NIM sets. The container's image depends on the
    model; it is left to the environment variable ``NIM_IMAGE``.
    """
    need_one_pool(candidate, "nim")
    need_backend(candidate, "nim", "vllm", "sglang", "trtllm")
    lines = [f"{name}={value}" for name, value in environment(candidate).items()]
    run = ["docker", "run", "--rm", "--gpus", "all", "--shm-size", "16g", "-p", f"{PORT}:8000"]
    run += ["--env-file", "nim.env", "-e", "NGC_API_KEY"]
    text = script([*describe(candidate), "NIM_IMAGE: the model's NIM on nvcr.io/nim"], run)
    return {"nim.env": "\n".join(lines) + "\n", "run.sh": text.rstrip("\n") + ' "$NIM_IMAGE"\n'}


def environment(candidate: Candidate) -> dict[str, str]:
    """Returns the variables that :func:`~dynosim.hardware_models.nim.from_nim_environment` reads
    back as the candidate's fields."""
    card = read_yaml(DATA / "nim.yaml")
    found = {"NIM_MODEL_NAME": candidate.model, **_profile(card, candidate)}
    errors = []
    for field, value in candidate.given():
        if field in _UNSAID or field in _PROFILE:
            continue
        try:
            name, text = _variable(card, candidate, field, value)
        except UserError as error:
            errors.append(error)
            continue
        found[name] = text
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return found


def _profile(card: dict[str, Any], candidate: Candidate) -> dict[str, str]:
    """Returns the readable profile: engine, precision and how many GPUs share the model."""
    d = candidate.deployment
    engine = next(word for word, key in card["engines"].items() if key == candidate.backend)
    precision = d.quantization or "bf16"
    if precision not in card["precisions"]:
        raise UserError(
            f"no NIM profile is known for {precision!r}",
            where="quantization",
            hint=f"allowed: {', '.join(card['precisions'])}",
        )
    shape = f"tp{d.tensor_parallel_size}-pp{d.pipeline_parallel_size}"
    return {"NIM_MODEL_PROFILE": f"{engine}-{precision}-{shape}"}


def _variable(
    card: dict[str, Any], candidate: Candidate, field: str, value: Any
) -> tuple[str, str]:
    for name, row in card["fields"].items():
        if row["field"] != field or row.get("engine", candidate.backend) != candidate.backend:
            continue
        if row["kind"] == "switch":
            return name, "1" if value else "0"
        if row["kind"] == "word":
            spelt = {v: k for k, v in reversed(row["words"].items())}
            if value in spelt:
                return name, str(spelt[value])
            continue
        return name, f"{value:g}" if isinstance(value, float) else str(value)
    raise UserError("a NIM has no variable for it", where=field, hint="leave it out")
