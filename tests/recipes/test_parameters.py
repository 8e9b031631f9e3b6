"""Every parameter says what it may be, and refuses the rest with one clear error."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_type_hints

import pytest

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.spec import Kind, Role, Shape
from ganger.core.units import HOUR, SECOND
from ganger.mechanisms.common.planes import Planes
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.recipes import registry
from ganger.recipes.parameters import Period, written
from serving.rig import Asked, affine, lanes, model
from serving.rig import play as serve
from worlds import cluster, job, play

HOSTILE = ("-1", "-4", "0", "", "nan", "inf", "-inf", "1e300", "99999999999999999999", "1us",
           "-1s", "150000000000d", "none", "X100", ";", "0.5", "\u0663", "true", "1,2")  # fmt: skip
ALL = [
    (name, key)
    for plane in registry.PLANES
    for name in registry.recipes(plane)
    for key in registry.find(name).parameters
]
WORKS = [job(f"j{i}", i / 1000, 0.005, size=1 + i % 2, tenant="ab"[i % 2]) for i in range(4)]

OTHERS = [
    job("web", 0, 1, kind=Kind.SERVE, shape=Shape((Role(size=1, least=1, most=2),))),
    job("search", 0.001, 0.01, kind=Kind.TUNE),
    job("t", 0.001, 0.005, parent="search"),
]

MODELS = [model("a", affine(2, 1, 8, p99=1.5)), model("b", affine(5, 2, 4))]
ASKED = [Asked(at / 2, at % 2, 20) for at in range(60)]


@pytest.mark.parametrize(("name", "key"), ALL)
def test_a_hostile_value_is_one_error_or_a_run_that_ends(name: str, key: str) -> None:
    plane = registry.find(name).plane
    for value in HOSTILE:
        with suppress(BadInput):  # anything else that is raised fails, and so does not ending
            if plane == "requests":
                serve(registry.make_router(f"{name}({key}={value})"), MODELS, lanes(2), ASKED)
                continue
            policy: Policy = registry.make(f"{name}({key}={value})")
            works = WORKS if plane == "training" else WORKS + OTHERS
            if plane == "serving":
                policy = Planes(policy, registry.make("fifo"))
            elif plane == "tuning":
                policy = TwoLevel(registry.make("fifo"), policy)
            play(policy, works, cluster(1, 4), until=3600 * SECOND)


@pytest.mark.parametrize(("name", "key"), ALL)
def test_every_number_has_stated_bounds(name: str, key: str) -> None:
    hint: Any = get_type_hints(registry.find(name).make, include_extras=True)[key]
    plain = (int, float, str, int | None, float | None)
    assert hint not in plain, "write one of the types of recipes.parameters"
    told = registry.find(name).values()[key]
    assert told["words"]
    if told["type"] in ("integer", "number"):
        assert told["least"] > -1e9 or told["most"] < 1e9


@pytest.mark.parametrize(
    "spec",
    [
        "tiresias(starvation=-1)",
        "mlfq(starvation=0)",
        "helios-ces(buffer=-5)",
        "helios-ces(falls=-1)",
        "pollux(low=0.9,high=0.1)",
        "backfill(depth=-3)",
        "backfill(depth=0)",
        "delay-scheduling(node_skips=-1)",
        "delay-scheduling(rack_skips=-1)",
        "edl(many=-4)",
        "spot(label=)",
        "chronus(lease=1us)",
        "themis(lease=1us)",
        "dorm(theta2=2)",
        "ali-mlaas(reserved=)",
        "las(quantum=1us)",
        "gittins(quantum=1us)",
        "gittins(step=999ms)",
        "spin(slot=1us)",
        "fgd(workload=8)",
        "fgd(workload=@pods.csv)",
        "fgd(covers=1.1)",
        "tiresias(step=1us)",
        "max-min(every=100ms)",
        "cpu-disaggregation(pool=-1)",
        "cpu-disaggregation(cores=-1)",
        "tiresias(interval=1us)",
        "tiresias(min_run=150000000000d)",
    ],
)
def test_values_that_mean_nothing_are_refused(spec: str) -> None:
    with pytest.raises(BadInput):
        registry.make(spec)


@pytest.mark.parametrize("tick", ["0", "999us", "0.5ms"])
def test_a_router_ticks_once_a_millisecond_at_most(tick: str) -> None:
    with pytest.raises(BadInput, match="1 ms or more"):
        registry.make_router(f"ebird(tick={tick})")


DURATIONS = [each for each in ALL if registry.find(each[0]).values()[each[1]]["type"] == "duration"]
HOURS = [
    job(f"j{i}", i / 1000, HOUR / SECOND, size=1 + i % 2, tenant="ab"[i % 2]) for i in range(6)
]


@pytest.mark.parametrize(("name", "key"), DURATIONS)
def test_no_duration_keeps_a_run_from_ending_in_practice(name: str, key: str) -> None:
    """Jobs of hours: a dozen steps a second at most with the least duration that is stated, and
    with a microsecond where that is accepted."""
    least = registry.find(name).values()[key]["least"]
    for value in (f"{least:g}s", "1us"):
        with suppress(BadInput):
            run = play(f"{name}({key}={value})", HOURS, cluster(1, 4), until=120 * SECOND)
            assert run.kernel.revision < 12 * 120, value


def test_a_period_names_its_bound() -> None:
    with pytest.raises(BadInput, match=r"las\(quantum\).*give 1 s or more"):
        registry.make("las(quantum=1us)")
    assert registry.find("las").values()["quantum"]["words"] == "a duration, 1 s or more"
    assert registry.make("las(quantum=1us)", bounded=False).name == "las", "as a journal may say"


@pytest.mark.parametrize(
    ("spec", "there"),
    [
        ("ali-mlaas(reserved=X100)", "V100"),
        ("ali-mlaas(reserved=V100;X100)", "V100"),
        ("spot(label=X100)", "none"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused_with_what_it_has(spec: str, there: str) -> None:
    with pytest.raises(BadInput, match=f"this cluster has no .* X100 .it has {there}"):
        play(spec, WORKS, cluster(1, 4))
    play(spec.partition("(")[0], WORKS, cluster(1, 4))


@pytest.mark.parametrize(
    ("alias", "means"),
    [
        ("QSSF", "helios"),
        ("ces", "helios-ces"),
        ("Tiresias-L", "tiresias"),
        ("yarn", "yarn-cs"),
        ("tiresias_g", "tiresias(index=gittins)"),
        ("2D-LAS", "las"),
        ("afs-l", "afs"),
        ("afs-p", "afs(lengths=p)"),
        ("elastic-tiresias", "edl"),
        ("wang", "non-intrusive"),
        ("mps", "space-sharing(mode=mps)"),
        ("mig", "space-sharing(mode=mig)"),
        ("synergy-tune", "synergy"),
        ("saxena", "elastic-scaling"),
        ("Max_Min", "max-min"),
    ],
)
def test_other_names_and_spellings(alias: str, means: str) -> None:
    assert registry.parse(alias) == registry.parse(means)
    assert registry.find(alias) is registry.parse(means)[0]


def test_a_variant_is_not_contradicted_and_takes_other_arguments() -> None:
    assert registry.parse("tiresias-g(consolidate=no)")[1]["consolidate"] is False
    with pytest.raises(BadInput, match=r"write tiresias\(index=least\)"):
        registry.make("tiresias-g(index=least)")
    with pytest.raises(BadInput, match="tiresias"):
        registry.find("tiresas-l")


def test_what_a_parameter_accepts_as_data_and_in_words() -> None:
    def of(recipe: str, key: str) -> dict[str, Any]:
        return dict(registry.find(recipe).values()[key])

    window = of("dorm", "window")
    assert (window["type"], window["least"], window["most"]) == ("integer", 1, 10_000)
    assert window["words"] == "integer, 1 to 10000"
    part = of("dorm", "theta2")
    assert (part["type"], part["least"], part["most"]) == ("number", 0.0, 1.0)
    lease = of("chronus", "lease")
    assert (lease["type"], lease["unit"], lease["least"]) == ("duration", "s", 1.0)
    assert lease["words"] == "a duration, 1 s or more"
    assert of("philly", "min_run")["words"] == "a duration"
    assert of("tiresias", "thresholds")["many"] is True
    assert of("tiresias", "thresholds")["words"] == "a duration; several with ;"
    assert of("delay-scheduling", "node_skips")["none"] is True
    assert of("delay-scheduling", "node_skips")["words"] == "integer, 0 to 1e+06; or none"
    assert of("edf", "preempt")["choices"] == ["yes", "no"]
    assert of("drf", "owner")["words"] == "user, tenant"
    assert of("spot", "label")["words"] == "text"


REFUSED = [
    "allox(alpha=0)", "dorm(theta1=-1)", "dorm(window=0)", "pop(parts=0)", "pop(objective=ftf)",
    "themis(fairness=1)", "themis(fairness=-0.1)", "topology-aware(threshold=0.76)", "sia(p=0)",
    "sia(wait=1)", "sia(p=-0.5,wait=0.5)", "sia(p=0.5,wait=0)", "pollux(low=0.7,high=0.6)",
    "hived(cells=ann)", "hived(cells=ann:0)", "hived(cells=ann:2x0)", "hived(cells=:2x1)",
    "hived(cells=ann:ax1)", "hived(cells=ann:1xb)", "gavel(space_sharing=yes,agnostic=yes)",
    "gavel(space_sharing=yes,deadlines=yes)", "gavel(space_sharing=yes,centred=yes)",
    "gavel(space_sharing=yes,in_order=yes)", "gavel(space_sharing=yes,objective=isolated)",
    "gavel(space_sharing=yes,counters=yes)", "gavel(deadlines=yes)",
    "gavel(deadlines=yes,objective=ftf)",
]  # fmt: skip


@pytest.mark.parametrize("spec", REFUSED)
def test_what_makes_no_sense_is_refused(spec: str) -> None:
    with pytest.raises(BadInput):
        registry.make(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "allox(alpha=0.01,window=1)",
        "dorm(theta1=0,theta2=0,window=1)",
        "dorm(theta2=1)",
        "pop(parts=1)",
        "themis(fairness=0)",
        "topology-aware(threshold=0.75)",
        "sia(wait=1.01)",
        "sia(p=0.5,wait=0.1)",
        "pollux(low=0.6,high=0.6)",
        "hived(cells=ann:0x1)",
        "gavel(objective=max_sum,deadlines=yes)",
        "gavel(objective=cost,deadlines=yes)",
    ],
)
def test_what_is_just_inside_the_bounds_is_taken(spec: str) -> None:
    assert registry.make(spec).name


def test_a_default_is_written_as_one_would_write_it() -> None:
    assert written(300 * SECOND, Period | None) == "5m 00s"
    assert written(None, Period | None) == "none"
    assert written((60 * SECOND, 5400 * SECOND), tuple[Period, ...]) == "1m 00s;1h 30m"
    assert written(True, bool) == "true"
    assert written(3, int) == "3"


@pytest.mark.parametrize(
    "name", [name for plane in registry.PLANES for name in registry.recipes(plane)]
)
def test_every_default_can_be_typed_as_it_is_shown(name: str) -> None:
    recipe = registry.find(name)
    for key, text in recipe.defaults().items():
        found, arguments = registry.parse(f"{name}({key}={text})")
        assert (found.name, arguments) == (name, {key: recipe.parameters[key]})
