"""The catalogue of backends: versions, defaults by GPU, a source for each figure."""

import pytest

from dynosim.hardware_models.backends import (
    backend_sources,
    get_backend,
    list_backends,
    version_key,
)
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu


def test_backends():
    assert list_backends() == ("sglang", "static", "trtllm", "vllm")


@pytest.mark.parametrize("name", ["TensorRT-LLM", "trtllm", "tensorrt_llm", "TRT-LLM"])
def test_spellings(name):
    assert get_backend(name).name == "trtllm"


def test_versions_are_ordered():
    ordered = ["0.9.0", "0.19", "0.19.1", "1.0.0", "1.3.0rc2", "1.3.0rc20", "1.3.0"]
    assert sorted(reversed(ordered), key=version_key) == ordered


def test_text_that_is_no_version_is_an_error():
    with pytest.raises(UserError, match="not a version"):
        get_backend("vllm", "latest")


@pytest.mark.parametrize("version", ["0.8.5", "0.25.0", "99.0"])
def test_a_version_without_constants_is_refused(version):
    with pytest.raises(UserError, match=r"known: 0.9.0 to 0.24.0"):
        get_backend("vllm", version)


@pytest.mark.parametrize(
    ("gpu", "seqs", "tokens"),
    [("H100", 1024, 8192), ("B200", 1024, 8192), ("A100", 256, 2048), ("L40S", 256, 2048)],
)
def test_vllm_takes_more_on_large_gpus_but_the_a100(gpu, seqs, tokens):
    backend = get_backend("vllm", None, get_gpu(gpu))
    assert (backend.max_num_seqs, backend.max_num_batched_tokens) == (seqs, tokens)


@pytest.mark.parametrize(
    ("gpu", "tokens"),
    [("L4", 2048), ("A100-40GB", 4096), ("L40S", 4096), ("H100", 8192), ("B200", 16_384)],
)
def test_sglangs_chunk_grows_with_the_memory(gpu, tokens):
    assert get_backend("sglang", None, get_gpu(gpu)).max_num_batched_tokens == tokens


@pytest.mark.parametrize(
    ("name", "block", "prefixes", "chunks"),
    [
        ("vllm", 16, True, True),
        ("sglang", 1, True, True),
        ("trtllm", 32, True, False),
        ("static", 1, False, True),
    ],
)
def test_kv_blocks_and_switches(name, block, prefixes, chunks):
    backend = get_backend(name)
    assert backend.block_size == block
    assert backend.enable_prefix_caching is prefixes
    assert backend.enable_chunked_prefill is chunks


def test_vllm_defaults_by_version():
    old, new = get_backend("vllm", "0.11.0"), get_backend("vllm", "0.24.0")
    assert (old.gpu_memory_utilization, new.gpu_memory_utilization) == (0.9, 0.92)
    assert (old.asynchronous_scheduling, new.asynchronous_scheduling) == (False, True)


@pytest.mark.parametrize(
    ("backend", "current", "on_a100"),
    [
        ("vllm", "0.24.0", "0.14.0"),
        ("sglang", "0.5.14", "0.5.10"),
        ("trtllm", "1.3.0rc20", "1.0.0"),
    ],
)
def test_tables_stand_in_by_gpu(backend, current, on_a100):
    assert get_backend(backend, None, get_gpu("H200")).tables_version == current
    assert get_backend(backend, None, get_gpu("A100")).tables_version == on_a100
    assert get_backend(backend).version == current


@pytest.mark.parametrize("name", list_backends())
def test_every_figure_has_a_source_with_a_date(name):
    for figure, source in backend_sources(name).items():
        assert source.title, figure
        assert source.date >= "2022", figure


def test_an_old_kernel_reads_the_cache_once_per_group_it_was_built_for() -> None:
    old, new = get_backend("trtllm", "0.9.0"), get_backend("trtllm", "1.0.0")
    assert [old.decode_reads(size) for size in (1, 8)] == [1.0, 1.0]
    # Llama 3 8B: three of four query heads read a share of the KV head again.
    assert old.decode_reads(4) == 1.0 + 3 * old.reread_share
    assert [new.decode_reads(size) for size in (1, 4, 8, 29)] == [1.0] * 4
