"""The catalogue of models: names, shapes, formats, and parameter counts as published."""

import json

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.llm.catalog import get_model, list_models, model_config
from dynosim.hardware_models.llm.parameters import active_parameters, total_parameters

# Billions, as published on the model cards (and in the papers where a card rounds).
PUBLISHED = {
    "meta-llama/Llama-2-7b-hf": 6.74,
    "meta-llama/Llama-2-13b-hf": 13.02,
    "meta-llama/Llama-2-70b-hf": 68.98,
    "meta-llama/Llama-3.1-8B": 8.03,
    "meta-llama/Llama-3.1-70B": 70.6,
    "meta-llama/Llama-3.1-405B": 405.9,
    "meta-llama/Llama-3.2-1B": 1.24,
    "meta-llama/Llama-3.2-3B": 3.21,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 108.6,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 401.6,
    "codellama/CodeLlama-34b-hf": 33.7,
    "Qwen/Qwen2.5-0.5B-Instruct": 0.494,
    "Qwen/Qwen2.5-1.5B-Instruct": 1.54,
    "Qwen/Qwen2.5-3B-Instruct": 3.09,
    "Qwen/Qwen2.5-7B-Instruct": 7.62,
    "Qwen/Qwen2.5-14B-Instruct": 14.8,
    "Qwen/Qwen2.5-32B-Instruct": 32.8,
    "Qwen/Qwen2.5-72B-Instruct": 72.7,
    "Qwen/Qwen1.5-MoE-A2.7B": 14.3,
    "Qwen/Qwen3-0.6B": 0.596,
    "Qwen/Qwen3-4B": 4.02,
    "Qwen/Qwen3-8B": 8.19,
    "Qwen/Qwen3-14B": 14.77,
    "Qwen/Qwen3-32B": 32.8,
    "Qwen/Qwen3-30B-A3B": 30.5,
    "Qwen/Qwen3-235B-A22B": 235.1,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": 480.2,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 80.0,
    "Qwen/Qwen3.5-35B-A3B": 35.0,
    "Qwen/Qwen3.5-397B-A17B": 397.0,
    "mistralai/Mistral-7B-Instruct-v0.3": 7.25,
    "mistralai/Mistral-Nemo-Instruct-2407": 12.2,
    "mistralai/Mistral-Small-24B-Instruct-2501": 23.6,
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503": 24.0,
    "mistralai/Mistral-Large-Instruct-2407": 122.6,
    "mistralai/Mixtral-8x7B-v0.1": 46.7,
    "mistralai/Mixtral-8x22B-v0.1": 140.6,
    "deepseek-ai/DeepSeek-V2-Lite": 15.7,
    "deepseek-ai/DeepSeek-V2": 235.7,
    "deepseek-ai/DeepSeek-V3": 671.0,
    "moonshotai/Kimi-K2-Instruct": 1026.0,
    "moonshotai/Kimi-VL-A3B-Instruct": 16.4,
    "openai/gpt-oss-20b": 20.9,
    "openai/gpt-oss-120b": 116.8,
    "MiniMaxAI/MiniMax-M2": 228.7,
    "google/gemma-2b": 2.51,
    "google/gemma-7b": 8.54,
    "google/gemma-2-2b-it": 2.61,
    "google/gemma-2-9b-it": 9.24,
    "google/gemma-2-27b-it": 27.2,
    "google/gemma-3-4b-it": 4.3,
    "google/gemma-3-12b-it": 12.2,
    "google/gemma-3-27b-it": 27.4,
    "ibm-granite/granite-3.1-2b-instruct": 2.53,
    "ibm-granite/granite-3.1-8b-instruct": 8.17,
    "microsoft/phi-2": 2.78,
    "microsoft/Phi-3-mini-4k-instruct": 3.82,
    "microsoft/Phi-3-medium-4k-instruct": 14.0,
    "microsoft/phi-4": 14.7,
    "microsoft/Phi-4-mini-instruct": 3.84,
    "microsoft/Phi-3.5-MoE-instruct": 41.9,
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": 49.9,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31.6,
    "nvidia/Nemotron-H-56B-Base-8K": 56.3,
    "zai-org/GLM-4.5-Air": 106.9,
    "zai-org/GLM-4.5": 352.8,
    "01-ai/Yi-34B": 34.4,
    "ByteDance-Seed/Seed-OSS-36B-Instruct": 36.2,
    "CohereLabs/c4ai-command-r-plus": 103.8,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1.1,
}
ACTIVE = {
    "Qwen/Qwen3-30B-A3B": 3.3,
    "Qwen/Qwen3-235B-A22B": 22.2,
    "mistralai/Mixtral-8x7B-v0.1": 12.9,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 17.9,
    "deepseek-ai/DeepSeek-V3": 37.5,
    "openai/gpt-oss-120b": 5.7,
}


def test_at_least_sixty_architectures():
    shapes = {n for n in list_models() if "_based_on" not in model_config_head(n)}
    assert len(shapes) >= 60
    assert len(list_models()) >= 250


def model_config_head(name):
    from dynosim.hardware_models.cards import DATA

    return json.loads((DATA / "models" / f"{name.replace('/', '--')}.json").read_text())


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_parameters_match_the_published_count(name, billions):
    assert total_parameters(get_model(name)) / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(("name", "billions"), ACTIVE.items())
def test_active_parameters_match_the_published_count(name, billions):
    assert active_parameters(get_model(name)) / 1e9 == pytest.approx(billions, rel=0.02)


def test_every_shipped_model_is_read():
    for name in list_models():
        model = get_model(name)
        assert model.name == name
        assert model.num_layers > 0
        assert 0 < active_parameters(model) <= total_parameters(model)


def test_every_shipped_model_has_a_source():
    assert all(model_config(name)["_source"] for name in list_models())


@pytest.mark.parametrize("name", ["llama-3.1-8b", "Llama-3.1-8B", "META-LLAMA/llama-3.1-8b"])
def test_names_are_forgiving(name):
    assert get_model(name).name == "meta-llama/Llama-3.1-8B"


def test_an_unknown_model_lists_the_nearest_and_the_way_out():
    with pytest.raises(UserError, match=r"Qwen/Qwen3-32B.*config\.json"):
        get_model("Qwen/Qwen3-23B")


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("google/gemma-3-27b-it", {1024: 52, None: 10}),
        ("google/gemma-3-12b-it", {1024: 40, None: 8}),
        ("google/gemma-3-4b-it", {1024: 29, None: 5}),
        ("google/gemma-2-27b-it", {4096: 23, None: 23}),
        ("openai/gpt-oss-20b", {128: 12, None: 12}),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", {8192: 36, None: 12}),
        ("mistralai/Mistral-7B-v0.1", {4096: 32}),
        ("Qwen/Qwen2.5-7B-Instruct", {None: 28}),
    ],
)
def test_windows(name, windows):
    found = {}
    for group in get_model(name).layers:
        found[group.window] = found.get(group.window, 0) + group.count
    assert found == windows


@pytest.mark.parametrize(
    ("name", "mixers"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"linear": 36, "attention": 12}),
        ("deepseek-ai/DeepSeek-V3", {"mla": 61}),
        (
            "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            {"mamba": 23, "none": 23, "attention": 6},
        ),
    ],
)
def test_mixers(name, mixers):
    found = {}
    for group in get_model(name).layers:
        found[group.mixer] = found.get(group.mixer, 0) + group.count
    assert found == mixers


@pytest.mark.parametrize(
    ("name", "dense", "sparse"),
    [
        ("deepseek-ai/DeepSeek-V3", 3, 58),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 24, 24),
        ("Qwen/Qwen3-30B-A3B", 0, 48),
        ("zai-org/GLM-4.5-Air", 1, 45),
    ],
)
def test_which_layers_route_to_experts(name, dense, sparse):
    layers = get_model(name).layers
    assert sum(g.count for g in layers if g.is_moe) == sparse
    assert sum(g.count for g in layers if not g.is_moe) == dense


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("deepseek-ai/DeepSeek-V3", 163_840),
        ("openai/gpt-oss-20b", 131_072),
        ("meta-llama/Llama-3.1-8B", 131_072),
        ("google/gemma-3-27b-it", 131_072),
        ("Qwen/Qwen2.5-7B-Instruct", 32_768),
    ],
)
def test_longest_context(name, length):
    assert get_model(name).max_position_embeddings == length


@pytest.mark.parametrize(
    ("name", "linear", "experts", "bits"),
    [
        ("Qwen/Qwen3-32B", "bfloat16", "bfloat16", 16.0),
        ("Qwen/Qwen3-32B-FP8", "fp8_block", "fp8_block", 8 + 32 / 16384),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8", "fp8", 8.0),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8", "int8", "int8", 8.0),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "int4", "int4", 4 + 16 / 128),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "int4", "int4", 4 + 20 / 128),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "int8_weight_only", "int8_weight_only", 8.1875),
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "nvfp4", "nvfp4", 4.5),
        ("openai/gpt-oss-120b", "bfloat16", "mxfp4", 16.0),
        ("moonshotai/Kimi-K2-Thinking", "bfloat16", "int4", 16.0),
    ],
)
def test_formats(name, linear, experts, bits):
    quantization = get_model(name).quantization
    assert (quantization.linear, quantization.experts) == (linear, experts)
    assert quantization.linear_bits_per_weight == pytest.approx(bits)


def test_checkpoints_that_ask_for_an_fp8_cache():
    assert get_model("nvidia/Llama-3.1-70B-Instruct-FP8").quantization.kv_cache == "fp8"


def test_attention_left_in_sixteen_bits():
    assert not get_model("nvidia/DeepSeek-R1-0528-NVFP4").quantization.quantizes_attention


LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
    "max_position_embeddings": 512, "torch_dtype": "bfloat16",
}  # fmt: skip


def write(folder, content, name="config.json"):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_users_config_is_read_from_file_or_folder(tmp_path):
    path = write(tmp_path, LLAMA)
    assert get_model(str(path)).hidden_size == 64
    assert get_model(str(tmp_path)).num_layers == 2


def test_a_hand_computed_parameter_count(tmp_path):
    model = get_model(str(write(tmp_path, LLAMA)))
    attention = 64 * 64 * 2 + 64 * 32 * 2
    layer = attention + 3 * 64 * 128 + 2 * 64
    assert total_parameters(model) == 2 * layer + 2 * 256 * 64 + 64


def test_modelopt_metadata_beside_the_config_is_read(tmp_path):
    write(tmp_path, LLAMA)
    metadata = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    write(tmp_path, metadata, "hf_quant_config.json")
    assert get_model(str(tmp_path)).quantization.linear == "fp8"


@pytest.mark.parametrize(
    ("change", "where", "problem"),
    [
        ({"hidden_size": None}, "hidden_size", "missing"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers", "whole number"),
        ({"vocab_size": -5}, "vocab_size", "whole number"),
        ({"num_key_value_heads": 3}, "num_key_value_heads", "does not divide"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings", "true or false"),
        ({"layer_types": ["full_attention"]}, "layer_types", "1 entries for 2 layers"),
        ({"layer_types": ["magic", "magic"]}, "layer_types", "not modelled"),
        ({"torch_dtype": "int3"}, "torch_dtype", "not modelled"),
        ({"index_topk": 2048}, "index_topk", "not modelled"),
        ({"quantization_config": {"quant_method": "magic"}}, "quant_method", "not modelled"),
        ({"text_config": 5}, "text_config", "mapping"),
    ],
)
def test_a_malformed_config_names_file_and_key(tmp_path, change, where, problem):
    path = write(tmp_path, LLAMA | change)
    with pytest.raises(UserError) as caught:
        get_model(str(path))
    assert str(path) in caught.value.where
    assert where in caught.value.where
    assert problem in str(caught.value)


@pytest.mark.parametrize("content", ["{", "[1]", "not json"])
def test_a_file_that_is_no_json_object_is_named(tmp_path, content):
    path = write(tmp_path, content)
    with pytest.raises(UserError, match="JSON"):
        get_model(str(path))


def test_a_missing_and_a_binary_file_are_named(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        get_model(str(tmp_path / "absent.json"))
    path = tmp_path / "binary.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text file"):
        get_model(str(path))
