"""The history oracle: what it says, that it stands by it, and that it learns."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ganger.core.events import Batch, Sampled
from ganger.core.kernel import Kernel
from ganger.core.spec import Needs, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.units import HOUR, SECOND
from ganger.estimate.history import History, Past
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from worlds import Work, cluster, job, play, trace_of


def run(works: list[Work], history: History, recipe: str = "sjf") -> Kernel:
    trace, nodes = trace_of(works), Nodes(cluster(1, 1))
    kernel = Kernel(nodes, trace.declared, registry.make(recipe), oracle=history, validate=True)
    kernel.run(Simulator(trace.declared, trace.duration, Physics(nodes)))
    return kernel


def told(kernel: Kernel, history: History, name: str) -> float:
    found: float = float(history.duration(kernel.view, np.array([kernel.jobs.find(name)]))[0])
    return found / SECOND


def test_before_anything_finished_estimate_then_limit_then_an_hour() -> None:
    history = History()
    works = [
        job("busy", lasts=1), job("own", lasts=1, estimate=7), job("limit", lasts=1, limit=9),
        job("none", lasts=1),
    ]  # fmt: skip
    kernel = run(works, history)
    fresh = History()
    assert told(kernel, fresh, "own") == 7
    assert told(kernel, fresh, "limit") == 9
    assert told(kernel, fresh, "none") == HOUR / SECOND


def test_the_most_alike_count_then_the_user_then_the_group_then_all() -> None:
    history = History(blend=0)
    past = [
        job("a1", at=0, lasts=10, user="ann", group="x"),
        job("a2", at=1, lasts=20, user="ann", group="x", size=1, model="m"),
        job("b1", at=2, lasts=60, user="bob", group="y"),
    ]
    later = [
        job("same", at=200, lasts=1, user="ann", group="x", model="m"),
        job("user", at=200, lasts=1, user="ann", group="x", model="other"),
        job("group", at=200, lasts=1, user="cyd", group="y"),
        job("all", at=200, lasts=1, user="dan", group="z"),
    ]
    trace = trace_of([*past, *later])
    kernel = Kernel(Nodes(cluster(1, 1)), trace.declared, registry.make("sjf"), oracle=history)
    kernel.run(Simulator(trace.declared, trace.duration, Physics(kernel.nodes)), 150 * SECOND)
    assert told(kernel, history, "same") == 20
    assert told(kernel, history, "user") == 15
    assert told(kernel, history, "group") == 60
    assert told(kernel, history, "all") == 30


def test_a_prediction_stands_while_the_job_waits() -> None:
    """`waits` is predicted while ann's only job took 50 s; one of 10 s ends before it starts."""
    history = History(blend=0)
    works = [job("long", lasts=50, user="ann"), job("other", at=51, lasts=10, user="ann")]
    works += [job("waits", at=52, lasts=5, user="ann"), job("later", at=62, lasts=5, user="ann")]
    trace, nodes = trace_of(works), Nodes(cluster(1, 1))
    kernel = Kernel(nodes, trace.declared, registry.make("helios"), oracle=history, validate=True)
    engine = Simulator(trace.declared, trace.duration, Physics(nodes))
    kernel.run(engine, 62 * SECOND)
    assert told(kernel, history, "waits") == 50
    assert told(kernel, history, "later") == 30
    kernel.run(engine)
    assert history.learnt.pinned == {}


def test_it_learns_who_is_short_and_beats_knowing_nothing() -> None:
    rng = np.random.default_rng(3)
    means = {"ann": 20.0, "bob": 400.0, "cyd": 3000.0}
    works, at = [], 0.0
    for i in range(200):
        user = list(means)[int(rng.integers(3))]
        at += float(rng.exponential(700))
        works.append(
            job(f"j{i}", at=at, user=user, lasts=float(means[user] * np.exp(rng.normal(0, 0.3))))
        )
    on = cluster(1, 2)

    def mean(recipe: str, knows: str) -> float:
        return float(np.mean(play(recipe, works, on, knows=knows).jct()))

    fifo, learnt, true = (
        mean("fifo", "nothing"),
        mean("helios", "history"),
        mean("helios", "truth"),
    )
    assert learnt < fifo
    assert learnt < 1.3 * true


def test_its_state_is_plain_data() -> None:
    history = History(enough=2)
    run([job(f"j{i}", at=20 * i, lasts=5 + i % 3, user=f"u{i % 2}") for i in range(9)], history)
    assert history.learnt.learnt > 2
    again = msgspec.json.decode(msgspec.json.encode(history.learnt), type=Past)
    assert again == history.learnt


HALF = Shape((Role(size=1, needs=Needs(gpus=1, share=500)),))


def sampling(works: list[Work], samples: list[tuple[str, float]], recipe: str = "fifo") -> History:
    """The oracle after jobs of two GPUs were seen to use so much of theirs, one after another."""
    trace, nodes = trace_of(works), Nodes(cluster(1, 2))
    history = History()
    kernel = Kernel(nodes, trace.declared, registry.make(recipe), oracle=history, validate=True)
    kernel.run(Simulator(trace.declared, trace.duration, Physics(nodes)), 2 * SECOND)
    for at, (name, gpu) in enumerate(samples):
        event = Sampled(kernel.jobs.find(name), 1, gpu, 1.0)
        kernel.step(Batch(kernel.now + at + 1, [event]))
    return history


def used(history: History, model: str) -> float:
    """What the oracle says that the model uses of a GPU; 0 where it says nothing."""
    return history.profile(model).utilisation.get("gpu", 0.0)


def test_what_jobs_used_alone_is_what_their_model_uses() -> None:
    works = [job("a", lasts=100, model="m"), job("b", lasts=100), job("c", lasts=100, model="n")]
    history = sampling(works, [("a", 0.5), ("b", 0.9), ("a", 0.55)])
    assert used(history, "m") == 0.5, "a change by less than a tenth is not told"
    assert used(history, "") == 0.0, "a job without a model stands for no other"
    assert used(history, "n") == 0.0, "it waits"
    moved = sampling(works, [("a", 0.5), ("a", 0.9)])
    assert used(moved, "m") == pytest.approx(0.7), "the mean"
    idle = sampling(works, [("a", 0.0)])
    assert used(idle, "m") == 0.01
    unmeasured = sampling(works, [("a", -1.0)])
    assert used(unmeasured, "m") == 0.0


def test_the_last_twenty_samples_count_and_a_snapshot_keeps_them() -> None:
    works = [job("a", lasts=100, model="m")]
    history = sampling(works, [("a", 1.0)] * 60 + [("a", 0.0)] * 20)
    assert used(history, "m") == pytest.approx(0.95**20, abs=0.1)
    kept = msgspec.json.decode(msgspec.json.encode(history.learnt), type=Past)
    again = History()
    again.learnt = kept
    assert used(again, "m") == used(history, "m")


def test_what_a_job_uses_beside_another_says_nothing_of_it_alone() -> None:
    halves = [job(name, lasts=100, model="m", shape=HALF) for name in ("a", "b")]
    alone = sampling(halves[:1], [("a", 0.4)], "space-sharing")
    assert used(alone, "m") == 0.4
    beside = sampling(halves, [("a", 0.4), ("b", 0.4)], "space-sharing")
    assert used(beside, "m") == 0.0
