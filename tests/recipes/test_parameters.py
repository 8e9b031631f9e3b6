"""Every parameter says what it may be, and refuses the rest with one clear error."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_type_hints

import pytest

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.spec import ClusterSpec, Kind, NodeSpec, Role, Shape
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
SIDES = ClusterSpec(
    (
        NodeSpec(count=1, gpus=4, gpu_type="V100"),
        NodeSpec(count=1, gpus=4, gpu_type="V100", pool="serving"),
    )
)
WORKS = [job(f"j{i}", i / 1000, 0.005, size=1 + i % 2, tenant="ab"[i % 2]) for i in range(4)]

OTHERS = [
    job("web", 0, 1, kind=Kind.SERVE, shape=Shape((Role(size=1, least=1, most=2),))),
    job("search", 0.001, 0.01, kind=Kind.TUNE),
    job("t", 0.001, 0.005, parent="search"),
]

MODELS = [model("a", affine(2, 1, 8, p99=1.5)), model("b", affine(5, 2, 4))]
ASKED = [Asked(at / 2, at % 2, 20) for at in range(60)]


STATED: dict[str, str] = {
    "afs": "lengths=remaining",
    "antman": "busy=0.8, bound=16384",
    "astraea": "lease=30m 00s, window=24",
    "clipper": "sizes=aimd, step=1, back=0.9",
    "clockwork": "largest=16, longest=25 ms, margin=5 ms",
    "dragon": "patience=30.0 s, quiet=1m 00s",
    "dybatch": "slice=8",
    "e-las": "index=estimate",
    "easeml": "patience=10, delta=0.1",
    "ebird": "tick=1 ms",
    "edl": "thresholds=54m 10s;2h 00m;5h 00m",
    "fluid": "packed=2",
    "ftf": "every=6m 00s",
    "gandiva": "quantum=1m 00s, pack=true",
    "gavel": "every=6m 00s",
    "helios-ces": "buffer=5, hold=12, every=10m 00s",
    "hierarchical": "every=6m 00s",
    "hypersched": "eta=4, first=1.0, epochs=100.0, again=true, ends=true",
    "lucid": "limit=3m 20s",
    "max-min": "every=6m 00s",
    "muri-l": "group=4",
    "muri-s": "group=4",
    "nexus": "epoch=30.0 s, soonest=10.0 s, overload=1.05, profile=1.15",
    "ones": "population=16, mutation=0.3",
    "optimus": "interval=10m 00s",
    "gslice": "standby=true",
    "inferline": "calm=15.0 s, back=30.0 s",
    "mark": "interval=1m 00s, steps=50, room=1.2, launch=3m 00s, cool=5, calm=6, warm=5",
    "philly": "full=0.9",
    "pollux": "interval=1m 00s, rescale=30.0 s",
    "pop": "every=6m 00s, deal=random",
    "scale.reactive": "target=2.0, look_back=30.0 s, up_delay=30.0 s, down_delay=10m 00s",
    "serve.bentoml": "latency=1m 00s",
    "sia": "interval=1m 00s, p=-0.5, wait=1.1",
    "synergy": "division=tune, every=5m 00s",
    "themis": "lease=20m 00s, fairness=0.8",
    "tiresias": "thresholds=54m 10s;2h 00m;5h 00m, step=54m 10s, index=least, attained=service",
    "tune.bohb": "epochs=81.0, eta=3",
    "tune.hyperband": "epochs=81.0, eta=3",
    "yeung": "limit=1.0",
    "tolerance-tiers": "confidence=0.999",
}
"""Defaults that a publication or its code states."""
OURS: dict[str, str] = {
    "ada-srsf": "kappa=1, beside=dual, preempt=false, walk=skip",
    "aonline": "slot=10m 00s, horizon=144",
    "cynthia": "sync=bsp, server_core=0.0, budget=none",
    "andreas": "every=1m 00s, price=0.15, penalty=1.0, tries=8, window=16, seed=0",
    "fc2": "threshold=0.5, budget=none",
    "gpoeo": "limit=0.05",
    "jahani": "penalty=10.0, window=6, nodes=200, gap=0.01",
    "gadget": "interval=10m 00s, reserve=0.1",
    "hybrid.aryl": "services=serving, every=5m 00s, notice=2m 00s, headroom=0.25, reclaim=greedy",
    "hybrid.priorities": "guarantee=0",
    "hybrid.separate": "services=serving",
    "jpas": "levels=4, interval=1m 00s, walk=skip",
    "mlcloudprice": "every=24h 00m, stay=24h 00m, move=5m 00s",
    "oasis": "slot=10m 00s, horizon=144, half=8h 00m, times=, values=",
    "parrot": "most=0.9, walk=skip",
    "rifling": "groups=2, regroup=1h 00m, patience=10m 00s, discount=0.9, epsilon=0.3, rate=0.1,"
    " fragmentation=0.1",
    "barista": "forecast=seasonal, interval=10m 00s, season=24h 00m, ahead=0 s, errors=6",
    "gslice": "gain=0.1, spare=0.1, calm=3",
    "mig-serving": "rounds=100, population=6, tries=4, spare=0.2, calm=3",
    "inferline": "sample=6, every=1h 00m, batch=0",
    "mark": "forecast=holt, season=24h 00m",
    "ali-mlaas": "reserved=V100;V100-32GB;V100M32;V100M16, walk=skip",
    "allox": "alpha=1.0, entrants=users, window=200",
    "antman": "beside=1, settle=10.0 s",
    "astraea": "starving=4h 00m",
    "backfill": "walk=easy, depth=1000, interval=none",
    "chronus": "lease=20m 00s",
    "clipper": "selection=exp3, rate=0.1, by_tenant=false, agree=0.0, otherwise=0, keeps=0,"
    " cache=none",
    "coda": "start=2, every=1m 00s, threshold=0.02, loss=0.05, reserved=0.75, large=4, part=0.5,"
    " throttle=bandwidth, walk=skip",
    "cocktail": "accuracy=0.97, every=10.0 s, least=30, start=all, size=64",
    "co-scheml": "bound=1.5, share=2, skip=false",
    "cpu-disaggregation": "cores=4.0, pool=1000, walk=strict",
    "delay-scheduling": "node_wait=1m 00s, rack_wait=1m 00s, node_skips=none, rack_skips=0,"
    " walk=skip",
    "dorm": "theta1=0.2, theta2=0.2, window=50",
    "drf": "owner=user, resources=all, walk=skip",
    "dynamoml": "parts=true, scales=true, limit=1.0, patience=30.0 s, quiet=1m 00s",
    "e-las": "epochs=100, walk=skip, min_run=0 s",
    "ebird": "sizes=8;4;2;1, most=0",
    "edf": "preempt=true, walk=skip",
    "edl": "many=10",
    "elastic-scaling": "interval=never",
    "ffdl": "samples=5, bias=3.0, walk=strict",
    "fgd": "workload=, ties=fullest, covers=1.0, walk=strict",
    "fifo": "walk=strict",
    "ftf": "agnostic=false, fill=true",
    "gandiva-fair": "quantum=1m 00s, trading=true, owner=user",
    "gavel": "objective=max_min, agnostic=false, deadlines=false, space_sharing=false, fill=true,"
    " compatible=false, in_order=false, centred=false, whole_steps=false, barrier=false,"
    " patience=0 s, counters=false, by_type=false, left_over=false, held_back=false,"
    " dropped=false, shuffled=false",
    "genie": "walk=skip",
    "harmony": "walk=strict",
    "gittins": "sizes=, step=none, quantum=10m 00s, refresh=1h 00m, attained=service, walk=skip",
    "helios": "walk=strict",
    "helios-ces": "falls=1.0",
    "heterogeneity-agnostic": "chance=false, walk=strict",
    "hierarchical": "inside=fairness, agnostic=false, fill=true",
    "hived": "cells=",
    "horus": "limit=1.0, exceed=true, distance=0.1, shortest=false, share=2, skip=false",
    "easeml": "trials=100, epochs=81.0, serves=hybrid, alike=0.5, mode=min, gpus=1",
    "fluid": "trials=27, tuner=all, eta=3, first=1.0, epochs=81.0, most_gpus=8, dynamic=true,"
    " mode=min",
    "hermes": "trials=27, window=1.0, epochs=81.0, mode=min, gpus=1",
    "gilman": "ahead=true",
    "hyperdrive": "trials=100, target=none, kill=none, every=5.0, epochs=100.0, deadline=none,"
    " mode=min, gpus=1",
    "hypersched": "trials=100, deadline=none, most_gpus=8, dealing=uniform, mode=min, gpus=1",
    "irina": "streams=2, suspend=0 s, batches=true, stacks=true, preempts=true",
    "jigsaw": "fraction=0.5, gain=1.05, share=2, walk=skip",
    "kubeshare": "limit=1.0, walk=skip",
    "las": "attained=service, quantum=10m 00s, walk=skip",
    "liquid": "limit=1.0, share=2, racks=4, batch=true, population=8, generations=20, walk=skip",
    "lucid": "partition=0.05, busy=0.8",
    "salus": "iterations=pack, share=8, walk=skip",
    "marble": "tolerance=0.15",
    "max-min": "heterogeneous=true, fill=true",
    "mlfq": "thresholds=1h 00m;10h 00m, starvation=none, walk=skip",
    "model-switching": "every=1.0 s, better=0.0, size=64",
    "muri-l": "every=6m 00s, window=512, quantum=10m 00s",
    "muri-s": "every=6m 00s, window=512",
    "nanily": "cache=none",
    "nexus": "weight=0.2, cycle=duty, fill=true, segments=50",
    "ones": "rounds=10, epoch=1m 00s, patience=1",
    "parm": "size=1",
    "philly": "node_wait=5m 00s, rack_wait=5m 00s, min_run=0 s",
    "placement": "fit=best, within=any, walk=strict",
    "pollux": "p=-1.0, population=50, generations=40, patience=8000, rows=256, autoscale=false,"
    " low=0.35, high=0.65",
    "pop": "objective=max_min, parts=4, fill=true",
    "priority": "highest=largest, preempt=true, walk=skip",
    "rubberband": "trials=27, deadline=none, epoch=1m 00s, startup=0 s, eta=3, first=1.0,"
    " epochs=81.0, most_gpus=8, elastic=true, mode=min, stragglers=0.0",
    "scale.reactive": "up=1.0, down=1.0",
    "scale.static-peak": "replicas=0",
    "scale.threshold": "up=0.8, down=0.3, cooldown=1m 00s",
    "seer": "trials=100, deadline=4h 00m, gpu_hours=32.0, rounds=4, eta=2, progress=0.0,"
    " most_gpus=8, mode=min",
    "serve.bentoml": "size=100, cache=none",
    "serve.clairvoyant": "full=2.0, order=least, size=128, steps=true",
    "serve.composed": "keeps=1000, select=exp3, longest=1000, lanes=least_loaded, order=deadline,"
    " batch=slack, size=64, delay=10 ms, cache=none",
    "serve.continuous-batching": "max_num_batched_tokens=2048, max_num_seqs=128, first=",
    "serve.dedicated": "size=64, cache=none",
    "serve.fair": "max_num_batched_tokens=2048, max_num_seqs=128, read=1.0, write=2.0, weights=",
    "serve.fixed-batch": "size=8, timeout=10 ms, cache=none",
    "serve.least-loaded": "size=1, cache=none",
    "serve.no-batch": "cache=none",
    "serve.power-of-two": "size=1, cache=none",
    "serve.round-robin": "size=1, cache=none",
    "serve.triton": "size=64, delay=0 s, preferred=, longest=0, cache=none",
    "sia": "restart=30.0 s",
    "sjf": "walk=strict",
    "singularity": "premium=0.95, standard=0.7, interval=5m 00s, level=6m 00s",
    "smd": "slot=10m 00s, epsilon=0.05, effort=1",
    "space-sharing": "mode=mps, walk=skip",
    "spin": "window=20, slots=20, slot=none",
    "spot": "label=spot, prefer=true, walk=skip",
    "srsf": "walk=skip, min_run=0 s",
    "srtf": "walk=skip, min_run=0 s",
    "swayam": "frontends=2, window=5.0 s, windows=4, horizon=10.0 s, idle=20.0 s, part=0.99,"
    " prunes=true",
    "synergy": "order=srtf",
    "tgs": "busy=0.8, period=1.0 s",
    "tiresias": "starvation=none, consolidate=true, walk=skip, min_run=0 s, fit=best,"
    " interval=none",
    "tolerance-tiers": "tolerance=0.01, aim=latency, tiers=, samples=1000, size=64",
    "topology-aware": "threshold=0.0, walk=strict",
    "tune.asha": "trials=27, eta=3, first=1.0, epochs=81.0, variant=stop, beyond=false, mode=min,"
    " gpus=1, share=1.0",
    "tune.bohb": "first=1.0, rounds=1, mode=min, gpus=1, share=1.0",
    "tune.grid": "trials=27, epochs=none, mode=min, gpus=1, share=1.0",
    "tune.hyperband": "first=1.0, rounds=1, mode=min, gpus=1, share=1.0",
    "tune.median": "trials=27, grace=1.0, every=1.0, least=5, epochs=none, mode=min, gpus=1,"
    " share=1.0",
    "tune.pbt": "trials=10, every=4.0, part=0.2, epochs=81.0, mode=min, gpus=1, share=1.0",
    "tune.random": "trials=27, epochs=none, mode=min, gpus=1, share=1.0",
    "tune.sha": "trials=27, eta=3, first=1.0, epochs=none, mode=min, gpus=1, share=1.0",
    "yarn-cs": "within=rack, walk=tenant",
    "yeung": "share=4, skip=false",
}
"""Defaults that are a choice of ours, or of a source that we know by its behaviour only."""


def shared(rule: str) -> Policy:
    """Services and jobs under a rule for sharing."""
    joined = registry.make_sharing(rule).join
    return joined(registry.make("scale.static-peak"), registry.make("fifo"))


@pytest.mark.parametrize(
    "name", [name for plane in registry.PLANES for name in registry.recipes(plane)]
)
def test_a_default_is_the_one_that_was_published_or_the_one_that_we_chose(name: str) -> None:
    typed = [each[name] for each in (STATED, OURS) if name in each]
    pairs = [pair.split("=", 1) for pair in ", ".join(typed).split(", ") if pair]
    said = dict(pairs)
    assert len(said) == len(pairs)
    recipe = registry.find(name)
    assert recipe.defaults() == said
    assert recipe.make().name


@pytest.mark.parametrize(("name", "key"), ALL)
def test_a_hostile_value_is_one_error_or_a_run_that_ends(name: str, key: str) -> None:
    plane = registry.find(name).plane
    for value in HOSTILE:
        with suppress(BadInput):  # anything else that is raised fails, and so does not ending
            if plane == "requests":
                serve(registry.make_router(f"{name}({key}={value})"), MODELS, lanes(2), ASKED)
                continue
            if plane == "hybrid":
                both = shared(f"{name}({key}={value})")
                play(both, WORKS + OTHERS, SIDES, until=3600 * SECOND)
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
    plane = registry.find(name).plane
    tunes, hybrid = plane == "tuning", plane == "hybrid"
    for value in (f"{least:g}s", "1us"):
        with suppress(BadInput):
            spec = f"{name}({key}={value})"
            policy: Policy = shared(spec) if hybrid else registry.make(spec)
            if tunes:
                policy = TwoLevel(registry.make("fifo"), policy)
            works = HOURS + OTHERS if tunes or hybrid else HOURS
            on = SIDES if hybrid else cluster(1, 4)
            run = play(policy, works, on, until=120 * SECOND)
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
