"""Decisions worked out by hand: the HPA's formula, tolerance, unready replicas and windows."""

import math
from importlib.util import find_spec

import numpy as np
import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module, module_names
from dynosim.sim.cluster.autoscalers.base import ScalingContext
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.signals import Signals
from dynosim.sim.cluster.scaling.stabiliser import Stabiliser

PACKAGE = "dynosim.sim.cluster.autoscalers"


def autoscaler(name, **options):
    options = ScalingOptions(autoscaler=name, max_replicas=100, **options)
    return find_module(PACKAGE, "autoscaler", name).make(ScalingContext(options=options))


def seen(**values):
    return Signals(**({"time_s": 0.0, "ready": 1} | values))


@pytest.mark.parametrize(
    ("ready", "outstanding", "wanted"),
    [
        (4, 80, 8),  # ceil(4 * 20 / 10)
        (4, 42, 4),  # 1.05 is within the tolerance of 0.1
        (4, 45, 5),  # ceil(4 * 1.125)
        (4, 18, 2),  # ceil(4 * 0.45)
        (3, 30, 3),
        (4, 0, 0),
    ],
)
def test_target_tracking_is_the_hpas_formula(ready, outstanding, wanted):
    policy = autoscaler("target_tracking", autoscaler_metric="concurrency", autoscaler_target=10.0)
    assert policy.desired(seen(ready=ready, outstanding=outstanding)) == wanted


def test_replicas_that_start_count_as_idle_when_more_are_wanted():
    policy = autoscaler("target_tracking", autoscaler_metric="concurrency", autoscaler_target=10.0)
    # 60 on 2 are 3 times the target; on 4 they are 1.5 times: ceil(4 * 1.5)
    assert policy.desired(seen(ready=2, starting=2, outstanding=60)) == 6
    # 30 on 2 ask for 3, but on the 4 there will be for fewer: nothing is done.
    assert policy.desired(seen(ready=2, starting=2, outstanding=30)) == 4


def test_replicas_that_start_count_as_at_target_when_fewer_are_wanted():
    policy = autoscaler("target_tracking", autoscaler_metric="concurrency", autoscaler_target=10.0)
    # 8 on 2 are 0.4 times the target; with 2 more at 10 each it is (8 + 20) / 40 = 0.7.
    assert policy.desired(seen(ready=2, starting=2, outstanding=8)) == 3


def test_keda_divides_a_total_and_leaves_none_only_where_there_is_no_request():
    policy = autoscaler("keda", autoscaler_metric="concurrency", autoscaler_target=10.0)
    assert policy.desired(seen(ready=2, outstanding=45)) == 5
    assert policy.desired(seen(ready=0, outstanding=1)) == 1
    assert policy.desired(seen(ready=0)) == 0
    assert policy.desired(seen(ready=3)) == 0


def test_thresholds_step_up_and_down_and_attainment_the_other_way_round():
    policy = autoscaler("threshold", autoscaler_target=4.0, autoscaler_step=2)
    assert policy.desired(seen(ready=2, waiting=9)) == 4
    assert policy.desired(seen(ready=2, waiting=5)) == 2
    assert policy.desired(seen(ready=4, waiting=3)) == 2
    policy = autoscaler("threshold", autoscaler_metric="slo_attainment", autoscaler_target=0.9)
    assert policy.desired(seen(ready=2, slo_attainment=0.8)) == 3
    assert policy.desired(seen(ready=2, slo_attainment=0.99)) == 1
    assert policy.desired(seen(ready=2, slo_attainment=0.92)) == 2
    assert policy.desired(seen(ready=2)) == 2


def test_scheduled_follows_the_clock():
    policy = autoscaler("scheduled", autoscaler_schedule="0:2, 600:8, 1200:1")
    assert [policy.desired(seen(time_s=t)) for t in (0.0, 599.0, 600.0, 5000.0)] == [2, 2, 8, 1]


def test_predictive_starts_before_the_season_comes_again():
    policy = autoscaler(
        "predictive",
        autoscaler_metric="request_rate",
        autoscaler_target=5.0,
        autoscaler_forecaster="seasonal",
        autoscaler_season_s=60.0,
        autoscaler_interval_s=15.0,
        autoscaler_lead_s=15.0,
    )
    wanted = []
    for rate in (10, 10, 50, 10, 10, 10):
        wanted.append(policy.desired(seen(outstanding=1, arrivals=rate * 15, interval_s=15.0)))
    assert wanted == [2, 2, 10, 2, 2, 10]


@pytest.mark.parametrize("name", module_names("dynosim.sim.cluster.forecasters"))
def test_every_forecaster_continues_an_even_series(name):
    if name in ("arima", "holt_winters") and find_spec("statsmodels") is None:
        pytest.skip("statsmodels is not installed: pip install 'dynosim[forecast]'")
    options = ScalingOptions(autoscaler_forecaster=name, autoscaler_season_s=60.0)
    forecaster = find_module("dynosim.sim.cluster.forecasters", "forecaster", name).make(options)
    assert forecaster.forecast(np.full(40, 7.0), 3) == pytest.approx([7.0] * 3, rel=0.02)


def test_the_down_window_waits_for_its_highest_decision_to_pass():
    stabiliser = Stabiliser(ScalingOptions(autoscaler_down_window_s=60.0), most=10)
    steps = [(0, 2, 6), (15, 6, 1), (30, 6, 3), (60, 6, 1), (75, 6, 1), (91, 3, 1)]
    assert [stabiliser.settle(*step) for step in steps] == [6, 6, 6, 6, 3, 1]


def test_the_up_window_takes_the_least_that_was_wanted():
    options = ScalingOptions(autoscaler_up_window_s=30.0, autoscaler_down_window_s=0.0)
    stabiliser = Stabiliser(options, most=10)
    steps = [(0, 1, 1), (15, 1, 8), (30, 1, 6), (45, 1, 7)]
    assert [stabiliser.settle(*step) for step in steps] == [1, 1, 1, 6]


def test_bounds_and_cooldown():
    options = ScalingOptions(
        min_replicas=2, autoscaler_cooldown_s=100.0, autoscaler_down_window_s=0.0
    )
    stabiliser = Stabiliser(options, most=5)
    assert stabiliser.settle(0.0, 2, 50) == 5
    assert stabiliser.settle(50.0, 5, 0) == 5
    assert stabiliser.settle(100.0, 5, 0) == 2


def test_an_autoscaler_without_a_target_says_what_it_needs():
    for name in ("keda", "target_tracking", "threshold"):
        with pytest.raises(UserError, match="autoscaler_target"):
            autoscaler(name)


def test_the_mean_of_no_replica_is_infinite_only_under_load():
    assert seen(ready=0, waiting=1).per_replica("queue") == math.inf
    assert seen(ready=0).per_replica("queue") == 0.0
