"""How many parameters a model has, and in which parts."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.llm.architecture import LayerGroup, LlmArchitecture, MlaShape


@dataclass(frozen=True, kw_only=True)
class LayerParameters:
    """Parameters of one layer by part, each part stored and sharded in its own way.

    ``attention`` is split by query heads, ``key_value`` by key-value heads; ``latent`` (the
    down-projections of multi-head latent attention), ``router`` and ``norms`` are copied to
    every rank; ``experts`` are the routed ones, all of them together.
    """

    attention: int = 0
    key_value: int = 0
    latent: int = 0
    linear_state: int = 0
    mlp: int = 0
    experts: int = 0
    router: int = 0
    norms: int = 0

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        mixer = self.attention + self.key_value + self.latent + self.linear_state
        return mixer + self.mlp + self.experts + self.router + self.norms


def layer_parameters(model: LlmArchitecture, group: LayerGroup) -> LayerParameters:
    """Returns the parameters of one layer of ``group``."""
    attention = key_value = latent = linear_state = 0
    if group.mixer == "attention":
        attention, key_value = _attention(model)
    elif group.mixer == "mla" and model.mla is not None:
        attention, latent = _latent_attention(model, model.mla)
    elif group.mixer in ("linear", "mamba") and model.linear_state is not None:
        linear_state = model.linear_state.parameters
    matrices = 3 if model.gated_mlp else 2
    experts = router = 0
    width = group.intermediate_size
    if group.is_moe and model.moe is not None:
        moe = model.moe
        width += moe.shared_intermediate_size
        experts = moe.num_experts * matrices * model.hidden_size * moe.moe_intermediate_size
        router = moe.num_experts * model.hidden_size
    return LayerParameters(
        attention=attention,
        key_value=key_value,
        latent=latent,
        linear_state=linear_state,
        mlp=matrices * model.hidden_size * width,
        experts=experts,
        router=router,
        norms=_norms(model, group),
    )


def _attention(model: LlmArchitecture) -> tuple[int, int]:
    query = model.num_attention_heads * model.head_dim
    key_value = 2 * model.num_key_value_heads * model.head_dim
    gates = 2 if model.attention_output_gate else 1
    bias = int(model.attention_bias)
    return query * model.hidden_size * (1 + gates) + bias * query, key_value * (
        model.hidden_size + bias
    )


def _latent_attention(model: LlmArchitecture, mla: MlaShape) -> tuple[int, int]:
    """Down-projections are copied, up-projections split by head (DeepSeek-V2, section 2.1)."""
    heads, hidden = model.num_attention_heads, model.hidden_size
    query_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    latent = hidden * mla.latent_dim + (hidden * mla.q_lora_rank if mla.q_lora_rank else 0)
    query = (mla.q_lora_rank or hidden) * heads * query_dim
    key_value = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return query + key_value + heads * mla.v_head_dim * hidden, latent


def _norms(model: LlmArchitecture, group: LayerGroup) -> int:
    blocks = int(group.mixer != "none") + int(group.is_moe or group.intermediate_size > 0)
    return blocks * model.hidden_size


def embedding_parameters(model: LlmArchitecture) -> int:
    """Parameters of the input embedding, without padding."""
    return model.vocab_size * model.hidden_size


def total_parameters(model: LlmArchitecture) -> int:
    """Returns all parameters: decoder, embedding, output head where not tied, and extras."""
    heads = 1 if model.tie_word_embeddings else 2
    layers = sum(g.count * layer_parameters(model, g).total for g in model.layers)
    outside = heads * embedding_parameters(model) + model.hidden_size + model.extra_parameters
    return layers + outside


def active_parameters(model: LlmArchitecture) -> int:
    """Returns the parameters that one token meets: all but the experts it is not routed to."""
    if model.moe is None:
        return total_parameters(model)
    idle = 1 - model.moe.experts_per_token / model.moe.num_experts
    experts = sum(g.count * layer_parameters(model, g).experts for g in model.layers)
    return total_parameters(model) - round(idle * experts)
