"""Environments: Gymnasium's own checker, and that what is decided there happens as under a
recipe."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ganger.core.errors import BadInput
from ganger.core.spec import Role, Shape
from ganger.core.units import NEVER, SECOND
from ganger.envs import PlacementEnv, QueueEnv, SchedulingEnv, SizingEnv
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulation import run_one
from ganger.mechanisms.learning.features import JOB
from ganger.mechanisms.learning.starting import AROUND
from ganger.sim.rows import Outage
from ganger.workloads.synthetic import synthesize
from worlds import cluster, job, trace_of

IS_A_JOB = len(JOB) + AROUND.index("is a job")
ENVS = (QueueEnv, PlacementEnv, SizingEnv)
UP_TO_FOUR = Shape((Role(size=1, least=1, most=4),))
ELASTIC = trace_of([job(f"j{n}", 100 * n, 5000, shape=UP_TO_FOUR) for n in range(12)])


def world(kind: type[SchedulingEnv], seed: int = 3, **more: Any) -> SchedulingEnv:
    """A small world of that kind, which validates every step."""
    setup = Setup(validate=True)
    if kind is SizingEnv:
        return kind(ELASTIC, "2x4xV100", setup=setup, **more)
    trace = synthesize("poisson", 60, seed, gpus=16, load=1.2)
    return kind(trace, "4x4xV100", setup=setup, **more)


@pytest.mark.parametrize("kind", ENVS)
def test_gymnasium_finds_nothing_wrong(kind: type[SchedulingEnv]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(obs|action|reward|spec|np_random).*")
        check_env(world(kind), skip_render_check=True)


@pytest.mark.parametrize("kind", ENVS)
def test_any_possible_actions_end_every_job_and_rewards_add_up_to_all_jcts(
    kind: type[SchedulingEnv],
) -> None:
    """Drawn at random, twice by the same seed: the same run."""

    def play() -> tuple[list[float], list[int]]:
        env, rng = world(kind, scale=1.0), np.random.default_rng(5)
        env.reset(seed=1)
        rewards, over = list[float](), False
        while not over:
            possible = env.action_masks().nonzero()[0]
            observed, reward, over, _, _ = env.step(rng.choice(possible))
            assert np.isfinite(observed).all()
            rewards.append(float(reward))
        episode = env.episode
        assert episode is not None
        return rewards, episode.completed().tolist()

    rewards, completed = play()
    trace = ELASTIC if kind is SizingEnv else synthesize("poisson", 60, 3, gpus=16, load=1.2)
    jct = sum(
        end - int(begin)
        for end, begin in zip(completed, trace.declared.submitted[: trace.jobs], strict=True)
    )
    assert -sum(rewards) == pytest.approx(jct / SECOND)
    assert play() == (rewards, completed)


@pytest.mark.parametrize("kind", [QueueEnv, PlacementEnv])
def test_the_actions_of_fifo_give_its_completion_times(kind: type[SchedulingEnv]) -> None:
    """In the queue: the first job if it fits, else wait. Among nodes: of those that have all that
    is needed the one with the least, else those with most, the lowest of equals: best fit."""
    env = world(kind)
    env.reset(seed=0)
    assert env.episode is not None
    steps = 0
    while (choice := env.episode.choice) is not None:
        if kind is QueueEnv:
            head = int(choice.rows[:-1, IS_A_JOB].argmax())
            action = head if choice.mask[head] else len(choice.mask) - 1
        else:
            rows = choice.rows
            enough = rows[:-1, 3] > 0
            key = np.where(enough, rows[:-1, 1] - 10.0, -rows[:-1, 1])
            action = int(np.where(choice.mask[:-1], key, np.inf).argmin())
        env.step(action)
        steps += 1
    trace = synthesize("poisson", 60, 3, gpus=16, load=1.2)
    run = run_one(trace, cluster(4, 4), "fifo", Setup())
    assert env.episode.completed().tolist() == np.rint(run.jobs.finish * SECOND).tolist()
    assert steps > 30


def test_what_is_impossible_counts_as_waiting() -> None:
    env = world(QueueEnv)
    _, info = env.reset(seed=0)
    impossible = int(np.flatnonzero(~info["action_mask"])[0])
    _, _, _, _, info = env.step(impossible)
    assert info["action_mask"].any()


def test_a_job_that_can_never_run_is_no_choice_and_others_go_on() -> None:
    sizes = (100, 1, 200, 2, 300, 4, 3)
    works = [job(f"j{n}", n, 50, size) for n, size in enumerate(sizes)]
    env = QueueEnv(trace_of(works), "2x4xV100", window=4, setup=Setup(validate=True))
    _, info = env.reset(seed=0)
    over = False
    while not over:
        observed, _, over, _, info = env.step(int(info["action_mask"].argmax()))
        assert observed[:, 0].max() <= 1.0
    assert env.episode is not None
    assert (env.episode.completed() < NEVER).tolist() == [size <= 8 for size in sizes]


def test_a_job_that_came_while_all_nodes_were_down_starts_when_one_is_up() -> None:
    setup = Setup(outages=(Outage(0, 0, 100 * SECOND),))  # validating drops what is cached
    env = QueueEnv(trace_of([job("a", 10, 50)]), "1x1xV100", setup=setup)
    env.reset(seed=0)
    env.step(0)
    assert env.episode is not None
    assert env.episode.completed().tolist() == [150 * SECOND]


def test_a_run_ends_at_its_horizon() -> None:
    """Two jobs of 100 s on one GPU: by 150 s they were there for 100 and 140 s."""
    works = [job("a", 0, 100), job("b", 10, 100), job("late", 500, 100)]
    env = QueueEnv(trace_of(works), "1x1xV100", setup=Setup(until=150 * SECOND), scale=1.0)
    env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        _, reward, over, _, _ = env.step(0)
        total -= float(reward)
    assert env.episode is not None
    assert (env.episode.completed() < NEVER).tolist() == [True, False, False]
    assert total == 240.0


def test_errors_are_one_line() -> None:
    with pytest.raises(BadInput, match="more than 2 nodes"):
        PlacementEnv(ELASTIC, "4x4xV100", window=2)
    with pytest.raises(BadInput, match="nothing to choose"):
        QueueEnv(trace_of([]), "4x4xV100").reset()


@pytest.mark.parametrize("window", [0, -1, 1.5, 10**7])
@pytest.mark.parametrize("kind", [QueueEnv, PlacementEnv, SizingEnv])
def test_a_window_that_is_none_is_refused(kind: Any, window: Any) -> None:
    with pytest.raises(BadInput, match="whole number from 1 to 4096"):
        kind(ELASTIC, "1x4xV100", window=window)


def test_times_and_scales_that_are_none_are_refused() -> None:
    for every in (0, -1, 1.5):
        with pytest.raises(BadInput, match="whole number from 1000000"):
            SizingEnv(ELASTIC, "1x4xV100", every=every)  # type: ignore[arg-type]
    for scale in (-1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="scale"):
            QueueEnv(ELASTIC, "1x4xV100", scale=scale)
