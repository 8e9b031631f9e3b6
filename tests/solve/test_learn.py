"""Nets, losses and replay: gradients against finite differences, small problems with known best
answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ganger.solve.learn.losses import (
    imitation,
    policy_gradient,
    q_error,
    q_wanted,
    returns,
    squares,
)
from ganger.solve.learn.nets import Adam, Floats, Mlp, best, drawn, log_chances
from ganger.solve.learn.replay import Replay

CHOSEN = np.array([0, 2, 1, 0])
MASK = np.array([[1, 1, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]], np.bool_)
ADVANTAGE = np.array([1.0, -0.5, 2.0, 0.3])
Loss = Callable[[Floats], tuple[float, Floats]]


def of_first(out: Floats) -> tuple[float, Floats]:
    """A critic's loss, where the first number of the output is the value."""
    loss, slope = squares(out[:, 0], ADVANTAGE)
    return loss, slope[:, None] * np.array([1.0, 0.0, 0.0])


LOSSES: dict[str, Loss] = {
    "imitation": lambda out: imitation(out, MASK, CHOSEN),
    "actor": lambda out: policy_gradient(out, MASK, CHOSEN, ADVANTAGE, 0.3),
    "critic": of_first,
    "values": lambda out: q_error(out, CHOSEN, np.array([0.1, 5.0, -7.0, 0.2])),
}


def slope_by_differences(f: Callable[[], float], cells: Floats) -> Floats:
    """The gradient of `f` by `cells`, which it reads, by central differences."""
    found = np.zeros_like(cells)
    for at in np.ndindex(cells.shape):
        kept = cells[at]
        cells[at] = kept + 1e-6
        above = f()
        cells[at] = kept - 1e-6
        found[at] = (above - f()) / 2e-6
        cells[at] = kept
    return found


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    rng = np.random.default_rng(3)
    net, x = Mlp.drawn((5, 7, 6, 3), rng, last=1.0), rng.standard_normal((4, 5))
    layers = net.layers(x)
    _, slope = LOSSES[name](layers[-1])
    gradients = net.gradients(layers, slope)
    for cells, gradient in zip(net.weights, gradients, strict=True):
        expected = slope_by_differences(lambda: LOSSES[name](net(x))[0], cells)
        assert np.allclose(gradient, expected, rtol=1e-5, atol=1e-8)


def test_a_net_scores_each_row_of_a_table_alike() -> None:
    """Gradients add up over rows, too."""
    rng = np.random.default_rng(4)
    net, table = Mlp.drawn((3, 4, 1), rng, last=1.0), rng.standard_normal((2, 6, 3))
    assert np.array_equal(net(table[:, ::-1])[:, ::-1], net(table))
    layers = net.layers(table)
    gradients = net.gradients(layers, np.ones((2, 6, 1)))
    expected = slope_by_differences(lambda: float(net(table).sum()), net.weights[0])
    assert np.allclose(gradients[0], expected, rtol=1e-5, atol=1e-8)


def test_what_is_impossible_is_never_chosen() -> None:
    scores, mask = np.array([50.0, 1.0, 1.0, -3.0]), np.array([0, 1, 1, 0], np.bool_)
    rng = np.random.default_rng(0)
    assert {drawn(scores, mask, rng) for _ in range(50)} == {1, 2}
    assert best(scores, mask) == 1
    assert np.allclose(np.exp(log_chances(scores, mask)), [0.0, 0.5, 0.5, 0.0])


def test_later_rewards_count_less_by_the_time_that_passes() -> None:
    """2 + 0.5 x (1 + 0.5^2 x 8) = 3.5."""
    found = returns(np.array([2.0, 1.0]), np.array([1.0, 2.0]), 8.0, 0.5)
    assert found.tolist() == [3.5, 3.0]


def weigh(seed: int, steps: int = 150) -> tuple[Mlp, float]:
    """An actor learns a bandit of four arms, the second of two pictures turned round."""
    rng = np.random.default_rng(seed)
    pays = np.array([[0.1, 0.9, 0.3, 1.0], [0.8, 0.2, 0.4, 1.0]])
    mask = np.array([True, True, True, False])
    net = Mlp.drawn((2, 8, 4), rng)
    adam = Adam(net.weights, 0.03)
    for _ in range(steps):
        pictures = rng.integers(0, 2, 16)
        x = np.eye(2)[pictures]
        layers = net.layers(x)
        chosen = np.array([drawn(scores, mask, rng) for scores in layers[-1]])
        won = pays[pictures, chosen]
        masks = np.tile(mask, (16, 1))
        _, slope = policy_gradient(layers[-1], masks, chosen, won - won.mean(), 0.01)
        adam.step(net.weights, net.gradients(layers, slope))
    return net, float(np.mean([pays[at, best(net(np.eye(2)[at]), mask)] for at in (0, 1)]))


def test_an_actor_comes_to_the_best_answer() -> None:
    """0.9 and 0.8, since the arm that pays 1 is impossible; and twice to the same weights."""
    net, won = weigh(1)
    assert won == pytest.approx(0.85)
    again, _ = weigh(1)
    assert all(np.array_equal(a, b) for a, b in zip(net.weights, again.weights, strict=True))
    other, _ = weigh(2)
    assert not np.array_equal(net.weights[0], other.weights[0])


def test_values_come_to_bellmans() -> None:
    """A corridor of four places: a step to the right costs nothing and its end pays 1; to leave at
    once pays 0.5. With a discount of 0.9 the first place is worth 0.9^3."""
    rng = np.random.default_rng(5)
    net, places = Mlp.drawn((4, 16, 2), rng), np.eye(4)
    adam, replay = Adam(net.weights, 0.01), Replay(64)
    for place in range(4):
        for action in (0, 1):
            over = action == 1 or place == 3
            pays = 0.5 if action else float(place == 3)
            replay.keep(places[place], action, pays, 0.0 if over else 0.9, places[(place + 1) % 4])
    old = Mlp([each.copy() for each in net.weights])
    both = np.ones((8, 2), np.bool_)
    for step in range(1200):
        at, counts, (x, acted, pay, discounts, after) = replay.draw(8, rng)
        chosen = acted.astype(np.int64)
        wanted = q_wanted(pay, discounts, net(after), old(after), both)
        layers = net.layers(x)
        _, slope = q_error(layers[-1], chosen, wanted)
        adam.step(net.weights, net.gradients(layers, slope * counts[:, None]))
        replay.surprise(at, layers[-1][np.arange(8), chosen] - wanted)
        if step % 20 == 0:
            old = Mlp([each.copy() for each in net.weights])
    values = net(places)
    assert values[:, 0] == pytest.approx([0.9**3, 0.81, 0.9, 1.0], abs=0.03)
    assert values[:, 1] == pytest.approx([0.5] * 4, abs=0.03)


def test_replay_forgets_the_oldest_and_draws_by_surprise() -> None:
    replay = Replay(4, focus=1.0)
    for number in range(6):
        replay.keep(float(number))
    assert len(replay) == 4
    rng = np.random.default_rng(0)
    _, _, (seen,) = replay.draw(200, rng)
    assert set(seen.tolist()) == {2.0, 3.0, 4.0, 5.0}
    replay.surprise(np.arange(4), np.array([1.0, 1.0, 3.0, 1.0]))
    at, counts, _ = replay.draw(400, rng)
    assert (at == 2).mean() == pytest.approx(0.5, abs=0.1)
    assert counts[at == 2] == pytest.approx(1 / 3, abs=0.01)
