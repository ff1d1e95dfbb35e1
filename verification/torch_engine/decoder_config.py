"""What the model needs of a Hugging Face ``config.json``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.llm.catalog import model_config
from dynosim.hardware_models.llm.fields import Fields, read_json

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ROTARY = ("default", "linear", "llama3")


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary embedding: its base, and how positions are stretched (``kind``).

    The other figures are those of ``linear`` (the factor alone) and ``llama3``.
    """

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """A dense decoder: grouped-query attention and a gated MLP in every layer."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rotary: Rotary
    tie_word_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    query_key_norm: bool

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of keys and values that one token leaves in the cache, over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim


def read_decoder_config(name: str) -> DecoderConfig:
    """Returns the model of the catalogue, or of a ``config.json`` or the folder it is in.

    Raises UserError for a model that this engine does not compute, with what it cannot do.
    """
    path = Path(name)
    if path.suffix == ".json" or path.is_dir():
        path = path / "config.json" if path.is_dir() else path
        return parse_decoder_config(read_json(path), str(path))
    return parse_decoder_config(model_config(name), name)


def parse_decoder_config(content: dict[str, Any], where: str) -> DecoderConfig:
    """Returns the model that a ``config.json`` describes; see :func:`read_decoder_config`."""
    config = Fields(content, where)
    family = config.text("model_type")
    if family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES, where=f"{where}: model_type")
    _refuse_what_is_missing(config)
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    biased = config.flag("attention_bias", False)
    return DecoderConfig(
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_layers=config.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=config.integer("num_key_value_heads", default=heads),
        head_dim=config.integer("head_dim", default=hidden // heads),
        vocab_size=config.integer("vocab_size"),
        rms_norm_eps=float(content.get("rms_norm_eps") or 1e-6),
        rotary=_rotary(config),
        tie_word_embeddings=config.flag("tie_word_embeddings", False),
        qkv_bias=biased or family == "qwen2",
        output_bias=biased and family != "qwen2",
        query_key_norm=family == "qwen3",
    )


def _refuse_what_is_missing(config: Fields) -> None:
    if config.has("quantization_config"):
        raise config.error("quantization_config", "the built-in engine has no quantised weights")
    if config.flag("mlp_bias", False):
        raise config.error("mlp_bias", "the built-in engine has no biases in the MLP")
    if config.text("hidden_act", default="silu") != "silu":
        raise config.error("hidden_act", "the built-in engine has only silu")
    windowed = config.has("sliding_window") and config.flag(
        "use_sliding_window", config.text("model_type") == "mistral"
    )
    if windowed:
        raise config.error("sliding_window", "the built-in engine has full attention only")


def _rotary(config: Fields) -> Rotary:
    """Returns the rotary embedding, from its keys of before and after transformers 5."""
    parts = config.mapping("rope_parameters") or config.mapping("rope_scaling")
    values = parts.values if parts is not None else {}
    kind = str(values.get("rope_type") or values.get("type") or "default")
    if kind not in ROTARY:
        raise UserError(
            f"the built-in engine has no {kind} rotary embedding",
            where=f"{config.where}: rope_scaling",
            hint=f"allowed: {', '.join(ROTARY)}",
        )
    theta = values.get("rope_theta") or config.values.get("rope_theta") or Rotary.theta
    return Rotary(
        theta=float(theta),
        kind=kind,
        factor=float(values.get("factor") or 1.0),
        low_freq_factor=float(values.get("low_freq_factor") or Rotary.low_freq_factor),
        high_freq_factor=float(values.get("high_freq_factor") or Rotary.high_freq_factor),
        original_positions=int(
            values.get("original_max_position_embeddings") or Rotary.original_positions
        ),
    )
