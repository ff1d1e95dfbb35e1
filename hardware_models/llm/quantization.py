"""From a checkpoint's quantisation metadata to formats and bits per weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.llm.architecture import Quantization
from dynosim.hardware_models.llm.fields import Fields

NO_QUANTIZATION = "none"
# Scales: two bytes a group of weights; zero points as wide as a weight (AWQ, GPTQ layouts).
_SCALE_BITS = 16.0
_FP4_BITS = {"nvfp4": 4 + 8 / 16, "mxfp4": 4 + 8 / 32}
_FP8_BLOCK_BITS = 8 + 32 / (128 * 128)
_METHODS = ("fp8", "compressed-tensors", "awq", "gptq", "mxfp4", "modelopt", "bitsandbytes")


def parse_quantization(config: Fields | None, dtype: str, beside: dict[str, Any]) -> Quantization:
    """Returns how the weights are stored.

    ``config`` is the ``quantization_config`` of the model (None: not quantised), ``beside`` the
    content of a ``hf_quant_config.json`` in the same folder (empty: there is none). Raises
    UserError for a method that is not modelled.
    """
    if beside:
        return _modelopt(Fields(beside, "hf_quant_config.json"), dtype)
    if config is None:
        return _uniform(NO_QUANTIZATION, dtype, _bits_of(dtype))
    method = config.text("quant_method").replace("_marlin", "").removesuffix("_fp4")
    readers = {
        "fp8": _fp8,
        "fbgemm_fp8": _fp8,
        "compressed-tensors": _compressed_tensors,
        "awq": _grouped,
        "gptq": _grouped,
        "mxfp4": _mxfp4,
        "modelopt": _modelopt,
        "bitsandbytes": _bitsandbytes,
    }
    if method not in readers:
        allowed = f"allowed: {', '.join(_METHODS)}"
        raise config.error("quant_method", f"method {method!r} is not modelled", allowed)
    return _excluding(readers[method](config, dtype), config, dtype)


def online_quantization(method: str, dtype: str) -> Quantization:
    """Returns what ``--quantization METHOD`` makes of an unquantised checkpoint while loading.

    Raises UserError for a method that vLLM cannot apply at load time.
    """
    if method == "fp8":
        return _uniform("fp8", "fp8", 8.0)
    if method == "bitsandbytes":
        return _uniform(method, "int4", 4 + 32 / 64)
    if method == "experts_int8":
        plain = _uniform(method, dtype, _bits_of(dtype))
        return replace(plain, experts="int8_weight_only", experts_bits_per_weight=8.0)
    raise UserError(
        f"method {method!r} needs a checkpoint quantised with it",
        where="quantization",
        hint="at load time: fp8, bitsandbytes, experts_int8",
    )


def _bits_of(dtype: str) -> float:
    return 32.0 if dtype == "float32" else 16.0


def _uniform(method: str, format_: str, bits: float) -> Quantization:
    return Quantization(
        method=method,
        linear=format_,
        experts=format_,
        linear_bits_per_weight=bits,
        experts_bits_per_weight=bits,
    )


def _fp8(config: Fields, dtype: str) -> Quantization:
    if config.has("weight_block_size"):
        return _uniform("fp8", "fp8_block", _FP8_BLOCK_BITS)
    is_static = config.text("activation_scheme", default="dynamic") == "static"
    return replace(_uniform("fp8", "fp8", 8.0), static_scales=is_static)


def _grouped(config: Fields, dtype: str) -> Quantization:
    method = config.text("quant_method").replace("_marlin", "")
    bits = config.integer("bits", "w_bit", default=4)
    group = config.integer("group_size", "q_group_size", default=128, least=-1)
    overhead = (_SCALE_BITS + bits) / group if group > 0 else 0.0
    return _uniform(method, "int4" if bits == 4 else "int8_weight_only", bits + overhead)


def _bitsandbytes(config: Fields, dtype: str) -> Quantization:
    if config.flag("load_in_8bit", False):
        return _uniform("bitsandbytes", "int8_weight_only", 8.0)
    double = config.flag("bnb_4bit_use_double_quant", False)
    return _uniform("bitsandbytes", "int4", 4 + (0.127 if double else 32 / 64))


def _mxfp4(config: Fields, dtype: str) -> Quantization:
    plain = _uniform("mxfp4", dtype, _bits_of(dtype))
    return replace(plain, experts="mxfp4", experts_bits_per_weight=_FP4_BITS["mxfp4"])


def _compressed_tensors(config: Fields, dtype: str) -> Quantization:
    groups = config.mapping("config_groups")
    if groups is None or not groups.values:
        raise config.error("config_groups", "missing")
    group = groups.mapping(next(iter(groups.values)))
    weights = group.mapping("weights") if group else None
    if group is None or weights is None:
        raise config.error("config_groups", "the first group has no weights")
    inputs = group.mapping("input_activations")
    format_, bits = _format(weights, weight_only=inputs is None)
    return replace(
        _uniform("compressed-tensors", format_, bits),
        kv_cache=_kv_scheme(config),
        static_scales=inputs is not None and not inputs.flag("dynamic", True),
    )


def _format(weights: Fields, *, weight_only: bool) -> tuple[str, float]:
    bits = weights.integer("num_bits")
    size = weights.integer("group_size", default=0, least=-1)
    scales = _SCALE_BITS / size if size > 0 else 0.0
    if weights.text("type", default="int") == "float":
        if bits == 4:
            return "nvfp4", _FP4_BITS["nvfp4"]
        return ("fp8_block", _FP8_BLOCK_BITS) if weights.has("block_structure") else ("fp8", 8.0)
    if bits == 4:
        return "int4", bits + scales
    return ("int8_weight_only" if weight_only else "int8"), bits + scales


def _kv_scheme(config: Fields) -> str:
    scheme = config.mapping("kv_cache_scheme")
    return "fp8" if scheme is not None and scheme.integer("num_bits", default=16) == 8 else "auto"


def _modelopt(config: Fields, dtype: str) -> Quantization:
    inner = config.mapping("quantization") or config
    algorithm = inner.text("quant_algo").upper()
    known = {"FP8": ("fp8", 8.0), "NVFP4": ("nvfp4", _FP4_BITS["nvfp4"])}
    known |= {"FP8_PB_WO": ("fp8_block", _FP8_BLOCK_BITS), "W4A16_AWQ": ("int4", 4 + 16 / 128)}
    if algorithm not in known:
        allowed = f"allowed: {', '.join(known)}"
        raise inner.error("quant_algo", f"algorithm {algorithm!r} is not modelled", allowed)
    kv_fp8 = inner.text("kv_cache_quant_algo").upper() == "FP8" or _kv_scheme(inner) == "fp8"
    plain = replace(
        _uniform("modelopt", *known[algorithm]),
        kv_cache="fp8" if kv_fp8 else "auto",
        static_scales=algorithm in ("FP8", "NVFP4"),
    )
    return _excluding(plain, inner, dtype)


def _excluding(plain: Quantization, config: Fields, dtype: str) -> Quantization:
    """Returns the quantisation without the parts that the checkpoint leaves in its base dtype."""
    keys = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")
    ignored = [str(name) for key in keys for name in config.items(key)]
    attention = any("attn" in name or "attention" in name for name in ignored)
    dense = any("shared_expert" in name for name in ignored) and plain.method != "mxfp4"
    if attention and dense:
        # Only routed experts are quantised (Kimi-K2 int4 and the like).
        plain = replace(plain, linear=dtype, linear_bits_per_weight=_bits_of(dtype))
    return replace(plain, quantizes_attention=plain.quantizes_attention and not attention)
