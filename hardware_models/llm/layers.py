"""From a ``config.json`` to the groups of equal layers that a model is made of."""

from __future__ import annotations

from collections import Counter

from dynosim.hardware_models.llm.architecture import LayerGroup, Mixer
from dynosim.hardware_models.llm.fields import Fields

_MIXERS: dict[str, Mixer] = {
    "full_attention": "attention",
    "attention": "attention",
    "sliding_attention": "attention",
    "chunked_attention": "attention",
    "linear_attention": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
}
_LOCAL = ("sliding_attention", "chunked_attention")
_HYBRID_LETTERS: dict[str, tuple[Mixer, str]] = {
    "M": ("mamba", ""),
    "*": ("attention", ""),
    "-": ("none", "mlp"),
    "E": ("none", "experts"),
}


def layer_groups(config: Fields) -> tuple[LayerGroup, ...]:
    """Returns the decoder's layers, equal ones counted together, in order of first appearance."""
    if config.has("hybrid_override_pattern"):
        return _from_letters(config)
    if config.has("block_configs"):
        return _from_blocks(config)
    count = config.integer("num_hidden_layers", "n_layer", "num_layers")
    kinds = zip(_mixers(config, count), _mlps(config, count), strict=True)
    return _counted([(mixer, window, moe, width) for (mixer, window), (moe, width) in kinds])


def _counted(kinds: list[tuple[Mixer, int | None, bool, int]]) -> tuple[LayerGroup, ...]:
    return tuple(
        LayerGroup(count=n, mixer=mixer, window=window, is_moe=moe, intermediate_size=width)
        for (mixer, window, moe, width), n in Counter(kinds).items()
    )


def _mixers(config: Fields, count: int) -> list[tuple[Mixer, int | None]]:
    if config.has("kv_lora_rank"):
        return [("mla", None)] * count
    types = config.items("layer_types") or config.items("layers_block_type")
    if types and len(types) != count:
        raise config.error("layer_types", f"{len(types)} entries for {count} layers")
    if types:
        return [_typed(config, kind) for kind in types]
    if config.has("full_attention_interval"):
        every = config.integer("full_attention_interval")
        return [("linear" if (i + 1) % every else "attention", None) for i in range(count)]
    return [("attention", window) for window in _windows(config, count)]


def _typed(config: Fields, kind: object) -> tuple[Mixer, int | None]:
    mixer = _MIXERS.get(str(kind))
    if mixer is None:
        allowed = f"allowed: {', '.join(_MIXERS)}"
        raise config.error("layer_types", f"layer kind {kind!r} is not modelled", allowed)
    if kind not in _LOCAL:
        return mixer, None
    span = "attention_chunk_size" if kind == "chunked_attention" else "sliding_window"
    return mixer, _short(config, config.integer(span))


def _short(config: Fields, window: int) -> int | None:
    """Returns the window; None where it spans the whole context anyway."""
    longest = config.integer("max_position_embeddings", "n_positions", default=2**62)
    return window if window < longest else None


def _windows(config: Fields, count: int) -> list[int | None]:
    family = config.text("model_type")
    if config.has("attention_chunk_size"):
        chunk = _short(config, config.integer("attention_chunk_size"))
        return [None if (i + 1) % 4 == 0 else chunk for i in range(count)]
    if not config.has("sliding_window") or not config.flag("use_sliding_window", True):
        return [None] * count
    window = _short(config, config.integer("sliding_window"))
    # Gemma 2 alternates, Gemma 3 makes every sixth layer global (their reports, section 2).
    every = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6}.get(family, 0)
    every = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=every or 1)
    if every == 1:
        return [window] * count
    return [None if (i + 1) % every == 0 else window for i in range(count)]


def _mlps(config: Fields, count: int) -> list[tuple[bool, int]]:
    sparse = _sparse_layers(config, count)
    if len(sparse) == count:
        return [(True, 0)] * count
    width = config.integer("intermediate_size", "intermediate_size_mlp", "n_inner")
    # Llama 4 calls the width of its experts intermediate_size, that of its dense layers _mlp.
    width = config.integer("intermediate_size_mlp", default=width)
    return [(True, 0) if i in sparse else (False, width) for i in range(count)]


def num_experts(config: Fields) -> int:
    """Returns the number of routed experts; 0 for a dense model."""
    keys = ("num_local_experts", "n_routed_experts", "num_experts")
    return config.integer(*keys, default=0, least=0)


def _sparse_layers(config: Fields, count: int) -> set[int]:
    if num_experts(config) == 0:
        return set()
    if config.has("mlp_layer_types"):
        return {i for i, kind in enumerate(config.items("mlp_layer_types")) if kind == "sparse"}
    if isinstance(config.values.get("moe_layer_freq"), list):
        return {i for i, moe in enumerate(config.items("moe_layer_freq")) if moe}
    if config.has("moe_layers"):
        return set(config.items("moe_layers"))
    first = config.integer("first_k_dense_replace", default=0, least=0)
    every = config.integer("interleave_moe_layer_step", "decoder_sparse_step", default=0, least=0)
    if every:
        skipped = set(config.items("mlp_only_layers"))
        return {i for i in range(count) if (i + 1) % every == 0} - skipped
    step = config.integer("moe_layer_freq", default=1)
    return {i for i in range(first, count) if i % step == 0}


def _from_letters(config: Fields) -> tuple[LayerGroup, ...]:
    """Nemotron-H: M a Mamba layer, * attention, - an MLP, E experts; each a layer by itself."""
    width = config.integer("intermediate_size", default=0, least=0)
    kinds: list[tuple[Mixer, int | None, bool, int]] = []
    for letter in config.text("hybrid_override_pattern"):
        if letter not in _HYBRID_LETTERS:
            raise config.error("hybrid_override_pattern", f"letter {letter!r} is not modelled")
        mixer, block = _HYBRID_LETTERS[letter]
        kinds.append((mixer, None, block == "experts", width if block == "mlp" else 0))
    return _counted(kinds)


def _from_blocks(config: Fields) -> tuple[LayerGroup, ...]:
    """Nemotron NAS: each block keeps or drops attention and scales its MLP by a multiplier."""
    hidden = config.integer("hidden_size")
    kinds: list[tuple[Mixer, int | None, bool, int]] = []
    for block in config.items("block_configs"):
        attention, ffn = block["attention"], block["ffn"]
        if attention.get("replace_with_linear") or ffn.get("replace_with_linear"):
            raise config.error("block_configs", "replace_with_linear is not modelled")
        mixer: Mixer = "none" if attention.get("no_op") else "attention"
        width = 0 if ffn.get("no_op") else _multiplied(hidden, float(ffn["ffn_mult"]))
        kinds.append((mixer, None, False, width))
    return _counted(kinds)


def _multiplied(hidden: int, multiplier: float) -> int:
    """Two thirds of four hidden sizes times the multiplier, rounded up to 256 (model's code)."""
    width = int(2 * multiplier * hidden / 3)
    return -(-width // 256) * 256
