"""A replica's start from its deployment's options, alone and in company."""

from __future__ import annotations

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.scaling.replica_start import replica_start
from dynosim.sim.deployment import Deployment


def snapshot(**changes: object) -> Deployment:
    fields = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100"}
    fields |= {"startup": "snapshot", "startup_storage": "nfs"} | changes
    return Deployment(**fields)  # type: ignore[arg-type]


def test_stages_are_rows_that_add_up_to_a_start_alone() -> None:
    start = replica_start(snapshot())
    stages = start.plan.to_frame()
    assert stages.seconds.sum() == pytest.approx(start.plan.alone_s)
    assert start.at_once_s(1) == pytest.approx([start.plan.alone_s])
    assert stages.gib.max() > 15  # the weights are 15 GiB


def test_what_is_read_over_shared_storage_takes_longer_in_company() -> None:
    start = replica_start(snapshot())
    assert max(start.at_once_s(8)) > 2 * start.plan.alone_s


def test_a_replica_that_does_not_fit_does_not_start() -> None:
    with pytest.raises(UserError, match="memory"):
        replica_start(snapshot(model="meta-llama/Llama-3.1-70B-Instruct", gpu="t4"))
