"""Transfers over shared links, against what queueing theory says of processor sharing."""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from batch_means import assert_mean
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.fabric import Fabric, Link

GB = 1e9


def ends_s(env: simpy.Environment, events: list[simpy.Event]) -> list[float]:
    """Runs to the end and returns when each event came."""
    times = [float("nan")] * len(events)

    def note(at: int) -> None:
        times[at] = env.now

    for at, event in enumerate(events):
        assert event.callbacks is not None
        event.callbacks.append(lambda _, at=at: note(at))
    env.run()
    return times


@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_n_transfers_at_once_take_n_times_as_long(n: int):
    env = simpy.Environment()
    fabric, link = Fabric(env), Link("wire", 10 * GB)
    events = [fabric.send([link], 5 * GB) for _ in range(n)]
    assert ends_s(env, events) == pytest.approx([n * 0.5] * n)
    assert link.carried_bytes == pytest.approx(n * 5 * GB)
    assert link.busy_s == pytest.approx(n * 0.5)


def test_one_that_begins_later_slows_the_first_down_from_then_on():
    env = simpy.Environment()
    fabric, link = Fabric(env), Link("wire", 1 * GB)
    first = fabric.send([link], 3 * GB)
    second = fabric.send([link], 1 * GB, latency_s=1.0)
    # Alone until 1 s, then half each: the second ends at 3 s, the first has 1 GB left for 1 s.
    assert ends_s(env, [first, second]) == pytest.approx([4.0, 3.0])


def test_what_one_is_held_up_from_using_goes_to_the_others():
    env = simpy.Environment()
    fabric = Fabric(env)
    out, narrow, wide = Link("out", 10 * GB), Link("narrow", 2 * GB), Link("wide", 100 * GB)
    held_up = fabric.send([out, narrow], 2 * GB)
    other = fabric.send([out, wide], 8 * GB)
    assert ends_s(env, [held_up, other]) == pytest.approx([1.0, 1.0])


def test_nobody_sends_faster_than_bytes_are_made():
    env = simpy.Environment()
    fabric, link = Fabric(env), Link("wire", 10 * GB)
    made = fabric.send([link], 2 * GB, most_bytes_s=1 * GB)
    other = fabric.send([link], 18 * GB)
    assert ends_s(env, [made, other]) == pytest.approx([2.0, 2.0])


def test_nothing_arrives_after_the_latency():
    env = simpy.Environment()
    assert ends_s(env, [Fabric(env).send([], 0.0, latency_s=0.25)]) == [0.25]


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("inf"), float("nan")])
def test_a_link_without_a_bandwidth_is_refused(bandwidth: float):
    with pytest.raises(UserError, match="wire"):
        Link("wire", bandwidth)


def sojourns_s(sizes_s: np.ndarray, gaps_s: np.ndarray) -> np.ndarray:
    """Returns how long transfers of these seconds, at these intervals, take on one link."""
    env = simpy.Environment()
    fabric, link = Fabric(env), Link("wire", 1.0)
    took = np.zeros(len(sizes_s))

    def arrive() -> Generator[simpy.Event, None, None]:
        for at, (size, gap) in enumerate(zip(sizes_s, gaps_s, strict=True)):
            yield env.timeout(gap)
            begun_s = env.now
            event = fabric.send([link], size)
            assert event.callbacks is not None
            event.callbacks.append(
                lambda _, at=at, begun_s=begun_s: took.__setitem__(at, env.now - begun_s)
            )

    env.process(arrive())
    env.run()
    return took


@pytest.mark.parametrize("law", ["M/M/1-PS", "M/D/1-PS"])
@pytest.mark.parametrize("load", [0.4, 0.7])
def test_mean_sojourn_under_processor_sharing(law: str, load: float):
    """E[T] = E[S] / (1 - load), whatever the law of the sizes (Kleinrock 1967)."""
    rng = np.random.default_rng(7)
    n = 6000
    sizes_s = rng.exponential(1.0, n) if law == "M/M/1-PS" else np.ones(n)
    took = sojourns_s(sizes_s, rng.exponential(1.0 / load, n))
    assert_mean(took, 1.0 / (1.0 - load), within=0.2)
    if law == "M/M/1-PS":
        # Whoever sends x takes x / (1 - load) in the mean: slowed down alike, short or long.
        is_short = sizes_s < 0.7
        assert_mean(took[is_short] / sizes_s[is_short], 1.0 / (1.0 - load), within=0.2)
        assert_mean(took[~is_short] / sizes_s[~is_short], 1.0 / (1.0 - load), within=0.2)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 50),
            st.floats(0.0, 3.0),
            st.sets(st.integers(0, 3), min_size=1),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_every_byte_arrives_and_no_link_carries_more_than_it_can(transfers):
    env = simpy.Environment()
    fabric = Fabric(env)
    links = [Link(f"wire {i}", float(i + 1)) for i in range(4)]
    events = [
        fabric.send([links[i] for i in path], size, latency_s=latency)
        for size, latency, path in transfers
    ]
    times = ends_s(env, events)
    assert all(t == t for t in times), "a transfer was lost"
    assert fabric.num_transfers == 0
    for number, link in enumerate(links):
        through = [(size, latency) for size, latency, path in transfers if number in path]
        assert link.carried_bytes == pytest.approx(sum(size for size, _ in through))
        assert link.carried_bytes <= link.busy_s * link.bandwidth_bytes_s * (1 + 1e-9) + 1e-6


def test_a_wider_link_never_makes_anyone_later():
    def last_s(bandwidth: float) -> float:
        env = simpy.Environment()
        fabric, link = Fabric(env), Link("wire", bandwidth)
        return max(
            ends_s(env, [fabric.send([link], 5.0, latency_s=t) for t in (0.0, 0.5, 0.5, 9.0)])
        )

    assert all(a >= b for a, b in pairwise(map(last_s, (0.5, 1.0, 2.0, 8.0, 1e6))))
