"""Services beside training by windows: what is read of them, and how far that is off."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ganger.cli.lab.simulate import simulate
from ganger.core.errors import BadInput
from ganger.core.events import Accepted, AnyEvent, Released, Served, Started
from ganger.core.plan import Placement, Slot, Start, Stop
from ganger.core.serving.world import Known, Lane, World
from ganger.core.spec import JobSpec, Kind, Role, Shape
from ganger.core.units import SECOND
from ganger.lab.log import replay
from ganger.lab.result import Run
from ganger.lab.serving.hosting import Traffic
from ganger.lab.serving.tally import Tally
from ganger.lab.serving.windows.holding import HeldBack
from ganger.lab.simulation import Setup, run_one
from ganger.recipes.registry import make_router
from ganger.sim.requests.host import Requested, Requesting
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import NOT_YET, Columns, Plane
from ganger.sim.requests.window import Fared
from ganger.workloads.clusters import load_cluster
from ganger.workloads.formats import load_trace
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.processes import step
from ganger.workloads.requests.synthetic import Mix, generated
from ganger.workloads.trace import Trace
from serving.rig import MS, Seen, table
from worlds import job, trace_of

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples/serving"
WEB = job("web", at=0, lasts=None, kind=Kind.SERVE, shape=Shape((Role(size=1, least=1, most=3),)))
ONE: Placement = (Slot(0, 1, 1),)

# ---------------------------------------------------------------------- the simulator's part


class Shelf:
    """Holds back one request a second; windows of ten seconds are known from the third on, unless
    something changed in them."""

    def __init__(self) -> None:
        self.skipped, self.changed, self._now = 0, -1, 0
        self.ready: list[Columns] = []
        self.figures: list[Fared] = []
        self.opened: list[int] = []

    @property
    def more(self) -> bool:
        return self._now < 50 * SECOND

    def chunks(self) -> Iterator[Columns]:
        while True:
            yield self.ready.pop(0) if self.ready else NOT_YET

    def _hand(self, until: int) -> None:
        rows = range(self._now, until, SECOND)
        self._now = until
        if rows:
            self.ready.append({"arrival": [at - self.skipped for at in rows]})

    def release(self, now: int) -> None:
        self.changed = (now - 1) // (10 * SECOND)
        self._hand((self.changed + 1) * 10 * SECOND)

    def known(self, now: int, up: Sequence[Lane]) -> Fared | None:
        if now <= 20 * SECOND or self.changed == now // (10 * SECOND) - 1:
            self._hand(now)
            return None
        self._now = now
        self.skipped += 10 * SECOND
        return Fared({"arrivals": 77.0}, [0.25 * (lane.number + 1) for lane in up])

    def served(self, fared: Fared) -> None:
        self.figures.append(fared)

    def open(self, at: int) -> None:
        self.opened.append(at)


def test_a_window_that_is_known_passes_for_nobody() -> None:
    """A replica loads until 2 s, a request a second takes 0.4 s. The third and the fifth window are
    known; in the fourth a second replica comes. What ran when a known window began goes on after
    it: 50 s on the clock of the simulation are 30 s for the router."""
    models = [Known("m", {("gpu", 1.0): table(400)})]
    world = World(models, [Lane(n, "gpu", device=n, down=True) for n in range(3)])
    shelf, seen = Shelf(), Seen(world)
    router = make_router("serve.no-batch")
    plane = Plane(world, router, Physics(models), shelf.chunks(), [seen])
    services = {"web": Requested(plane, 2 * SECOND, held=shelf)}
    host = Requesting(trace_of((WEB,)).declared, services, 10 * SECOND, lambda node: "gpu")
    told: list[AnyEvent] = []

    def until(at: float) -> None:
        while host.next_time() <= at * SECOND:
            told.extend(host.advance(host.next_time()))

    def starts(row: int, at: int) -> None:
        until(at)
        spec = JobSpec(name=f"r{row}", parent="web")
        host.happened(at * SECOND, [Accepted(row, spec, spawned=True)])
        host.planned(at * SECOND, [Start(row, 1, ONE)])
        host.happened(at * SECOND, [Started(row, 1)])

    starts(1, 0)
    starts(2, 32)
    until(50)
    windows = [event for event in told if isinstance(event, Served)]
    assert [event.since for event in windows] == [at * 10 * SECOND for at in range(5)]
    assert [event.figures["arrivals"][0] for event in windows] == [10, 10, 77, 10, 77]
    assert [each.figures["arrivals"] for each in shelf.figures] == [10, 10, 10]
    assert windows[2].figures["busy"] == (None, 0.25)
    assert windows[4].figures["busy"] == (None, 0.25, 0.5)
    assert [windows[at].services for at in (2, 4)] == [(0, 1), (0, 1, 2)]
    assert host.total_up(0) == (48 + 16) * SECOND
    host.planned(50 * SECOND, [Stop(1, 1)])
    host.happened(50 * SECOND, [Released(1, 1)])
    host.close(50 * SECOND)
    assert shelf.opened == [30 * SECOND]
    assert seen.outcomes == ["answered"] * 30
    late = [2.4, 2.8, 3.2, 3.6, *(at + 0.4 for at in range(4, 30))]
    assert [each / MS for each in seen.ended] == pytest.approx(late)


# ---------------------------------------------------------------------- a run


def day(folder: Path) -> Trace:
    (folder / "t.csv").write_text(
        "job,submitted,duration,gpus,min_gpus,max_gpus,kind,model\n"
        "web,0,70,1,1,4,serve,resnet50\nj1,30,20,2,2,2,train,\n"
    )
    return load_trace(folder / "t.csv")


def asked(router: str = "serve.triton") -> Traffic:
    """300 requests a second, and 700 from the eighth second on."""
    mix = Mix(models=1, names=("resnet50",), slo=SECOND // 25)
    made = generated(step(300, 700, at=8.0), seed=3, duration=70.0, mix=mix)
    return Traffic(made, read_models(EXAMPLES / "models.toml"), router)


def test_what_is_read_is_what_a_run_gives_and_the_log_needs_no_requests(tmp_path: Path) -> None:
    """The limits of the design: a point of attainment, 5 % of p50, 15 % of p99."""
    from ganger.lab.log import LogWriter

    trace, cluster = day(tmp_path), load_cluster("1x8xT4")
    runs: list[Run] = []
    writers: list[LogWriter] = []
    for by_windows in (False, True):
        traffic = replace(asked(), by_windows=by_windows, yardsticks=by_windows)
        scaling = "scale.threshold(up=0.6,cooldown=4s)"
        setup = Setup(traffic=traffic, serving=scaling, window=2 * SECOND)

        def journal(kernel: object, setup: Setup = setup) -> LogWriter:
            log = tmp_path / "day.log"
            writers.append(LogWriter(log, kernel, trace, cluster, "fifo", setup).__enter__())  # type: ignore[arg-type]
            return writers[-1]

        runs.append(run_one(trace, cluster, "fifo", setup, journal=journal))
        writers[-1].__exit__(None, None, None)
    assert replay(tmp_path / "day.log") > 35
    whole, some = (run.services["web"] for run in runs)
    found = some["windows"]
    assert found["windows"] == found["read"] + sum(found["run"].values()) == 35
    assert found["read"] > 5
    assert found["run"]["replicas changed"] >= 3
    assert some["requests"] == whole["requests"]
    assert some["attainment"] == pytest.approx(whole["attainment"], abs=0.01)
    for name, within in {
        "latency_p50_seconds": 0.05,
        "latency_p99_seconds": 0.15,
        "batch_mean": 0.05,
        "utilisation": 0.05,
        "span_seconds": 0.001,
    }.items():
        assert some[name] == pytest.approx(whole[name], rel=within), name
    assert sum(some["dropped_by_reason"].values()) == some["dropped"]
    assert some["attainment"] <= some["clairvoyant"]["attainment"] <= some["attainment_bound"]
    every, thinned = (run.service_windows["web"] for run in runs)
    assert thinned["since"] == every["since"]
    assert thinned["arrivals"] == pytest.approx(every["arrivals"], abs=1)
    assert thinned["replicas"] == every["replicas"]
    for name in ("answered", "busy", "batch", "p99"):
        pairs = zip(thinned[name][10:35], every[name][10:35], strict=True)
        assert all(a == pytest.approx(b, rel=0.3) for a, b in pairs), name


@pytest.mark.parametrize(
    ("router", "watch", "why"),
    [
        ("cache.clairvoyant", False, "knows all requests that come"),
        ("swayam", False, "gives lanes back"),
        ("serve.triton", True, "a report draws every window"),
    ],
)
def test_what_needs_every_request_is_refused(
    tmp_path: Path, router: str, watch: bool, why: str
) -> None:
    traffic = replace(asked(router), by_windows=True, watch=watch)
    with pytest.raises(BadInput, match=why):
        run_one(day(tmp_path), load_cluster("1x8xT4"), "fifo", Setup(traffic=traffic))


def test_what_is_left_of_a_last_window_is_of_no_entry() -> None:
    """A replica may have gone when its service ends."""
    models = [Known("resnet50", {("T4", 1.0): table(4)})]
    lanes = [Lane(number, "T4", device=number) for number in range(2)]
    back = HeldBack(
        asked().requests, 10 * SECOND, lambda: Tally(World(models, lanes), [None]), lambda plan: 1.0
    )
    for number in range(1, 7):
        assert back.known(number * 10 * SECOND, lanes) is None
        back.served(Fared({"arrivals": 7000.0}, [0.5, 0.25]))
    assert back.choosing.counts["measured"] > 0
    back.served(Fared({"arrivals": 70.0}, [0.5]))


def test_the_commands_say_how_many_windows_were_read(tmp_path: Path) -> None:
    """`windows` of a scenario is how often its services report."""
    day(tmp_path)
    (tmp_path / "r.csv").write_text(
        "arrival,model\n" + "".join(f"{at / 4},resnet50\n" for at in range(200))
    )
    models = str(EXAMPLES / "models.toml")
    given = [str(tmp_path / "t.csv"), "--cluster", "1x8xT4", "--serving", "scale.reactive"]
    given += ["--requests", str(tmp_path / "r.csv"), "--models", models, "--quiet"]
    given += ["--no-yardsticks"]
    shown = CliRunner().invoke(
        simulate, [*given, "--by-windows", "--window", "20s"], env={"COLUMNS": "200"}
    )
    assert "fifo, web: of 3 windows of 20.0 s, 0 were read from a table of" in shown.output
    assert "1 replicas changed" in shown.output
    (tmp_path / "s.toml").write_text(
        f'format = "ganger.scenario/1"\nmodels = "{models}"\nrouters = ["serve.triton"]\n'
        'cluster = "1x8xT4"\nwindows = "20s"\n[[services]]\nname = "web"\nrequests = "r.csv"\n'
        '[training]\ntrace = "t.csv"\nrecipes = ["fifo"]\nscaling = "scale.reactive"\n'
    )
    scenario = CliRunner().invoke(
        simulate, [str(tmp_path / "s.toml"), "--json", "--quiet", "--no-yardsticks"]
    )
    found = json.loads(scenario.stdout)["runs"][0]["services"]["web"]["windows"]
    assert (found["seconds"], found["windows"], found["read"]) == (20.0, 3, 0)
    twice = CliRunner().invoke(simulate, [str(tmp_path / "s.toml"), "--by-windows"])
    assert str(twice.exception).endswith('(write windows = "10s" into s.toml)')
    alone = CliRunner().invoke(simulate, [str(tmp_path / "t.csv"), "--by-windows"])
    assert isinstance(alone.exception, BadInput)
    assert alone.exception.where == "--by-windows"
