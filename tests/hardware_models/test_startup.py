"""Starts against what was measured, and by hand where that is possible."""

import pytest

from dynosim.accuracy.startups import LOGS, errors, read_startups
from dynosim.hardware_models.cards import card_keys
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.registry import module_names
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.startup.figures import startup_sources
from dynosim.hardware_models.startup.options import StartupOptions
from dynosim.hardware_models.startup.plan import METHODS, plan_startup
from dynosim.hardware_models.startup.storage import get_storage, list_storages, storage_sources


def plan(model="meta-llama/Llama-3.1-8B-Instruct", gpu="h100", engine=None, **options):
    resolved = resolve_engine(
        EngineArgs(model=model, gpu=gpu, max_model_len=8192, **(engine or {}))
    )
    return plan_startup(resolved, plan_memory(resolved), StartupOptions(**options))


def stages(found):
    return {stage.name: found.stage_s(stage) for stage in found.stages}


def test_logged_starts_are_met(shared_data):
    folder = shared_data / "groundtruth"
    if not (folder / LOGS).is_file():
        pytest.skip(f"no {LOGS} in {folder}")
    starts = read_startups(folder)
    held_out = [start for start in starts if start.half == "held_out"]
    assert errors(held_out)[0] == 32
    assert errors(held_out)[1] <= 0.15
    assert errors(start for start in held_out if start.is_first_read)[1] <= 0.07
    assert errors(held_out, "compile")[1] <= 0.12


@pytest.mark.parametrize(
    ("method", "storage", "measured_s"),
    [
        ("cold", "gp3", 48.0),
        ("cold", "io2", 47.0),
        ("stream", "gp3", 14.3),
        ("stream", "io2", 7.5),
        ("stream", "s3", 4.9),
    ],
)
def test_weights_take_what_the_streamers_benchmark_says(method, storage, measured_s):
    """15 GB here, 16.06 GB of Llama-3.1-8B: seconds scale with bytes."""
    found = plan(gpu="a10g", startup=method, startup_storage=storage)
    (weights,) = (stage for stage in found.stages if stage.name == "weights")
    seconds = (found.stage_s(weights) - weights.seconds) * 15e9 / weights.num_bytes
    assert seconds == pytest.approx(measured_s, rel=0.03)


@pytest.mark.parametrize(
    ("model", "artifact_gib"), [("openai/gpt-oss-120b", 129.0), ("Qwen/Qwen3-0.6B", 6.2)]
)
def test_snapshots_are_as_large_as_published(model, artifact_gib):
    found = plan(model, "b200", startup="snapshot", startup_storage="nfs")
    assert found.stages[0].num_bytes / 2**30 == pytest.approx(artifact_gib, rel=0.02)


def test_a_snapshot_with_its_kv_cache_is_nearly_all_of_the_gpu():
    found = plan(
        "Qwen/Qwen3-0.6B", "b200", startup="snapshot", startup_storage="nfs", snapshot_keeps_kv=True
    )
    assert found.stages[0].num_bytes > 0.8 * 191.5e9


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"snapshot_gpu": "h200"}, "taken on NVIDIA H200"),
        ({"snapshot_driver": "570.1", "gpu_driver": "580.65"}, "taken under driver 570.1"),
    ],
)
def test_a_snapshot_of_other_nodes_is_a_cold_start(options, reason):
    found = plan(startup="snapshot", **options)
    assert found.method == "cold"
    assert reason in found.notes[0]
    assert plan(startup="snapshot", snapshot_gpu="H100").method == "snapshot"


def test_sleeping_replicas_wake_as_published():
    assert plan("Qwen/Qwen3-0.6B", "a100", startup="sleep_1").alone_s == pytest.approx(0.26, 0.1)
    assert plan("Qwen/Qwen3-0.6B", "a100", startup="sleep_2", startup_storage="nvme").alone_s == (
        pytest.approx(0.85, 0.1)
    )


def test_what_shortens_a_start():
    cold = stages(plan())
    assert "compile" not in stages(plan(engine={"enforce_eager": True}))
    assert "CUDA graphs" not in stages(plan(engine={"enforce_eager": True}))
    cached = stages(plan(startup_compile_cache=True))
    assert cached["compile (cached)"] < cold["compile"] / 3
    assert stages(plan(startup="stream", startup_storage="nvme"))["weights"] < cold["weights"] / 5


def test_node_and_image_come_first_but_not_to_who_wakes():
    node = {
        "startup_provision_s": 100.0,
        "startup_image_gib": 10.0,
        "startup_registry_gb_s": 1.0,
    }
    found = plan(**node)
    assert [s.name for s in found.stages[:2]] == ["node provisioning", "image pull"]
    assert found.alone_s == pytest.approx(plan().alone_s + 100.0 + 10.0 * 2**30 / 1e9)
    assert plan(startup="sleep_1", **node).alone_s == plan(startup="sleep_1").alone_s


def test_a_reader_is_as_slow_as_itself_or_the_storage():
    one, two = (stages(plan(engine={"tensor_parallel_size": tp}))["weights"] for tp in (1, 2))
    storage = get_storage("volume")
    weights = plan().stages[1].num_bytes
    assert one == pytest.approx(0.9 + weights / storage.reader_bytes_s("default"))
    assert two == pytest.approx(0.9 + weights / storage.bandwidth_bytes_s, rel=0.01)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"startup": "warm"}, "startup"),
        ({"startup_storage": "tape"}, "startup_storage"),
        ({"startup_image_gib": 5.0}, "startup_registry_gb_s"),
        ({"snapshot_failure_rate": 0.1}, "snapshot_failure_rate"),
    ],
)
def test_what_contradicts_itself_is_refused(options, where):
    with pytest.raises(UserError, match=where):
        plan(**options)


@pytest.mark.parametrize("method", module_names(METHODS))
def test_every_method_takes_time_on_every_storage(method):
    for storage in list_storages():
        assert plan(startup=method, startup_storage=storage).alone_s > 0.0


def test_every_figure_has_a_source():
    for backend in card_keys("startup"):
        assert all(source.title and source.date for source in startup_sources(backend).values())
    for storage in list_storages():
        assert all(source.title and source.date for source in storage_sources(storage).values())
