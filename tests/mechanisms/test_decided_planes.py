"""What is decided of searches, services and jobs beside each other is on record.

A line of `planes.txt` is a recipe for the cluster, one for the trials, one for services, how many
steps that took, and three fingerprints: of what was started, stopped and resized and when, of the
plans in full, and of the jobs table at the end. To change what is decided, run
`PYTHONPATH=tests python tests/mechanisms/test_decided_planes.py` and commit `planes.txt`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.core.kernel import Kernel
from ganger.core.profiles import Convergence, Load, Profile, Profiles
from ganger.core.spec import ClusterSpec, Kind, NodeSpec, OnPreempt, Role, Shape
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.lab.simulation import Setup, run_one
from ganger.recipes.registry import CATALOGUE
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from recipes.test_decided import SMALL
from worlds import Diary, Work, job, trace_of, words

pytestmark = pytest.mark.long

RECORD = Path(__file__).with_name("planes.txt")
SHA = "tune.sha(trials=9,eta=3,first=1)"
CASES = [
    *((SMALL.get(name, name), SHA, "scale.threshold") for name in sorted(CATALOGUE)),
    ("gavel(compatible=yes)", SHA, "scale.threshold"),
    ("fifo(walk=easy)", "tune.sha(trials=14,eta=2,first=2)", "scale.reactive"),
    ("las", "tune.sha(trials=9,eta=3,first=1)", "scale.reactive(up_delay=1m,down_delay=2m)"),
    ("srtf", "srtf", "scale.threshold(up=0.6,down=0.2,cooldown=30s)"),
    ("afs", "tune.sha(trials=12,eta=3,first=1,mode=max)", "scale.threshold"),
    ("afs", "fifo", "scale.static-peak"),
    ("gandiva-fair", "tune.sha(trials=9,eta=4,first=1)", "scale.threshold(up=0.9)"),
    ("themis", "tune.sha(trials=11,eta=3,first=2)", "scale.reactive"),
    ("gavel", "tune.sha(trials=9,eta=3,first=1)", "scale.static-peak(replicas=2)"),
    ("drf", "las", "scale.threshold"),
    ("tiresias", "tune.sha(trials=10,eta=2,first=1)", ""),
    ("priority", "priority", "scale.threshold"),
]
"""For the cluster, for the trials, for services."""


def curve(draw: Any, epochs: int) -> Profile:
    """A configuration whose loss falls with some noise; every fifth breaks down at the end."""
    floor, steep = draw(), 0.3 + draw()
    values = [floor + steep / (epoch + 1) + 0.1 * draw() for epoch in range(epochs)]
    if draw() < 0.2:
        values[-1] = float("nan")
    at = tuple(float(epoch + 1) for epoch in range(epochs))
    return Profile(
        convergence=Convergence(at, tuple(values), "loss", change=0, seconds=20 + 60 * draw())
    )


def works(draw: Any) -> tuple[list[Work], dict[str, Profile]]:
    """Two searches, one with trials of its own that come late, two services, and fifteen jobs."""
    models = {f"c{at}": curve(draw, 4 + at % 6) for at in range(9)}
    found = [
        job("sweep", 30, None, kind=Kind.TUNE, shape=Shape((Role(size=3, least=1, most=6),)),
            model="c3", tenant="ann", user="ann"),
        job("grid", 400, None, kind=Kind.TUNE, shape=Shape((Role(size=2),)), tenant="bob",
            user="bob", priority=1),
        job("web", 0, None, kind=Kind.SERVE, shape=Shape((Role(size=2, least=1, most=5),)),
            priority=2),
        job("app", 700, None, kind=Kind.SERVE, shape=Shape((Role(size=1, least=1, most=3),)),
            on_preempt=OnPreempt.NEVER),
    ]  # fmt: skip
    for at, (name, profile) in enumerate(models.items()):
        epochs = len(profile.convergence.epochs if profile.convergence else ())
        lasts = epochs * (profile.convergence.seconds if profile.convergence else 0.0)
        parent = "sweep" if at < 5 else "grid"
        begins = 30 + 90 * at if at < 5 else 400 + 50 * at
        found.append(job(f"{parent}-{name}", begins, lasts, parent=parent, model=name))
    for at in range(15):
        size = 1 + int(draw() * 4)
        role = Role(size=size, least=1, most=size + 2) if at % 3 == 0 else Role(size=size)
        begins, lasts = round(draw() * 4000), round(100 + draw() ** 2 * 3000)
        more: dict[str, Any] = {
            "priority": at % 4,
            "tenant": "ann" if at % 2 else "bob",
            "user": "x",
        }
        found.append(job(f"j{at}", begins, lasts, shape=Shape((role,)), **more))
    return found, models


def beside(
    outer: str,
    inner: str,
    serving: str,
    journal: Callable[[Kernel], Any],
    *,
    validate: bool = False,
) -> None:
    """Two hours on three nodes, of which two fail for a while."""
    draw = random.Random(11).random
    declared, models = works(draw)
    loads = {
        "web": Load((0.0, 500.0, 1200.0, 2000.0, 5000.0), (60.0, 170.0, 20.0, 110.0, 5.0), 40.0),
        "app": Load((700.0, 1500.0, 3000.0), (10.0, 90.0, 30.0), 40.0),
    }
    setup = Setup(
        profiles=Profiles(models),
        inner=inner,
        serving=serving,
        loads=loads if serving else {},
        validate=validate,
        until=2 * HOUR,
        costs=Costs(5 * SECOND, 4 * SECOND, 8 * SECOND),
        outages=(Outage(1, 10 * MINUTE, 15 * MINUTE), Outage(0, 40 * MINUTE, 48 * MINUTE)),
    )
    nodes = (NodeSpec(2, 4, "V100"), NodeSpec(1, 6, "V100"))
    run_one(trace_of(declared), ClusterSpec(nodes), outer, setup, journal=journal)


def decided(outer: str, inner: str, serving: str, *, validate: bool = False) -> str:
    """What was done in these two hours."""
    diary, kernels = Diary(), list[Kernel]()

    def journal(kernel: Kernel) -> Diary:
        kernels.append(kernel)
        return diary

    beside(outer, inner, serving, journal, validate=validate)
    jobs = kernels[0].jobs
    plans = [plan for _, plan in diary.steps if plan is not None]
    done = [
        [
            batch.at,
            *(words(kernels[0], action) for action in plan.actions if hasattr(action, "job")),
        ]
        for batch, plan in diary.steps
        if plan is not None and plan.actions
    ]
    table = {name: getattr(jobs, name)[: jobs.n].tolist() for name in jobs.columns()}
    return " ".join([str(len(plans)), *map(fingerprint, (done, plans, table))])


def fingerprint(of: Any) -> str:
    """Eight letters that differ where it does."""
    return hashlib.sha256(msgspec.json.encode(of)).hexdigest()[:8]


def recorded(case: tuple[str, str, str]) -> str:
    """The line of a case."""
    lines = RECORD.read_text().splitlines()
    assert len(lines) == len(CASES)
    return lines[CASES.index(case)]


def often() -> list[Any]:
    """Every second of the catalogue, and all others; `make soak` has the rest."""
    return [
        pytest.param(case, id=" ".join(case), marks=[pytest.mark.soak] * rare)
        for at, case in enumerate(CASES)
        for rare in (at < len(CATALOGUE) and at % 2,)
    ]


@pytest.mark.parametrize("case", often())
def test_it_decides_what_is_on_record(case: tuple[str, str, str]) -> None:
    """One in eight with every invariant checked, and every decision made again with nothing kept
    from those before; `make soak` does so with all."""
    validate = CASES.index(case) % 8 == 0
    assert f"{' '.join(case)} {decided(*case, validate=validate)}" == recorded(case)


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_it_decides_that_without_anything_kept(case: tuple[str, str, str]) -> None:
    assert f"{' '.join(case)} {decided(*case, validate=True)}" == recorded(case)


if __name__ == "__main__":
    RECORD.write_text("".join(f"{' '.join(case)} {decided(*case)}\n" for case in CASES))
