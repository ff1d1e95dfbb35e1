"""Which models the built-in engine computes, and how it refuses others. No PyTorch here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.llm.catalog import get_model
from dynosim.verification.torch_engine.decoder_config import (
    Rotary,
    parse_decoder_config,
    read_decoder_config,
)

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}


@pytest.mark.parametrize(
    "name",
    ["Qwen/Qwen3-8B", "Qwen/Qwen2.5-7B-Instruct", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"],
)
def test_models_of_the_catalogue_have_the_shapes_that_are_simulated(name: str) -> None:
    found, simulated = read_decoder_config(name), get_model(name)
    assert found.hidden_size == simulated.hidden_size
    assert found.num_layers == simulated.num_layers
    assert (found.num_heads, found.num_kv_heads, found.head_dim) == (
        simulated.num_attention_heads,
        simulated.num_key_value_heads,
        simulated.head_dim,
    )
    assert found.qkv_bias == simulated.attention_bias
    assert found.query_key_norm == (simulated.query_key_norm == "head")


def test_a_file_or_its_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    found = read_decoder_config(str(tmp_path))
    assert found == read_decoder_config(str(tmp_path / "config.json"))
    assert (found.head_dim, found.kv_elements_per_token) == (16, 2 * 2 * 2 * 16)
    assert (found.qkv_bias, found.output_bias, found.query_key_norm) == (False, False, False)


def test_biases_are_where_the_family_has_them() -> None:
    qwen2 = parse_decoder_config(LLAMA | {"model_type": "qwen2"}, "x")
    assert (qwen2.qkv_bias, qwen2.output_bias) == (True, False)
    llama = parse_decoder_config(LLAMA | {"attention_bias": True}, "x")
    assert (llama.qkv_bias, llama.output_bias) == (True, True)


@pytest.mark.parametrize(
    "written",
    [
        {
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "original_max_position_embeddings": 4096,
            },
        },
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "original_max_position_embeddings": 4096,
            }
        },
    ],
    ids=["before transformers 5", "since"],
)
def test_both_spellings_of_rotary_embeddings_are_read(written: dict[str, Any]) -> None:
    found = parse_decoder_config(LLAMA | written, "x").rotary
    assert found == Rotary(theta=5e5, kind="llama3", factor=8.0, original_positions=4096)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "qwen3_moe"}, "unknown family 'qwen3_moe'\n  nearest: qwen3"),
        ({"quantization_config": {"quant_method": "fp8"}}, "no quantised weights"),
        ({"mlp_bias": True}, "no biases in the MLP"),
        ({"hidden_act": "gelu"}, "only silu"),
        ({"model_type": "mistral", "sliding_window": 4096}, "full attention only"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "no yarn rotary embedding"),
    ],
)
def test_what_it_cannot_compute_is_refused_by_name(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_decoder_config(LLAMA | changed, "x")
