"""What every recipe decided on seven days is on record: whoever changes a decision sees which.

A line of `decided.txt` is a recipe, a day, when each job ended (seconds; `-`: it did not), and two
fingerprints: of the starts, stops and resizes with their places, and of the plans in full (with
what jobs wait for, and when the recipe wants to be asked again). To change what a recipe decides,
run `PYTHONPATH=tests python tests/recipes/test_decided.py`, read what that changed in
`decided.txt`, and commit both.

`make test` has every recipe of the catalogue on four days, every variant on three, and those that
solve or search at every decision on two (`often`); `make soak` has all on all.
"""

from __future__ import annotations

import hashlib
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from ganger.core.errors import BadInput
from ganger.recipes.registry import CATALOGUE
from recipes.days import DAYS, Day
from recipes.recorded import recorded
from worlds import play

RECORD = Path(__file__).with_name("decided.txt")
SMALL = {"pollux": "pollux(population=8,generations=4)"}
"""The same recipe with a smaller search, where its defaults take seconds a decision."""
VARIANTS = """
afs(lengths=attained) ali-mlaas(reserved=P100) ali-mlaas(walk=strict) allox(alpha=0.5)
antman(busy=0.5,bound=0,beside=2,settle=0s) kubeshare(limit=0.5,walk=strict) tgs(busy=0.5,period=2s)
allox(entrants=jobs,window=3) astraea(lease=5m,window=3) astraea(lease=10m,starving=30m)
backfill(walk=conservative) backfill(depth=2,interval=5m) backfill(walk=conservative,depth=3)
chronus(lease=5m) cpu-disaggregation(cores=6,pool=2) cpu-disaggregation(walk=skip)
co-scheml(bound=9,share=4,skip=yes) dynamoml(limit=0.5,patience=10m,quiet=1s)
delay-scheduling(node_wait=5m,rack_wait=10m) delay-scheduling(node_skips=2,rack_skips=1)
dorm(theta1=0.05,theta2=1) dorm(theta2=0,window=3) dragon(patience=10m,quiet=1s)
drf(owner=tenant,resources=gpus) drf(walk=strict)
e-las(index=discount,epochs=5,min_run=10m) edf(preempt=no) edf(walk=strict)
edl(thresholds=10m;1h,many=1) elastic-scaling(interval=10m) ffdl(bias=0,samples=1) ffdl(walk=skip)
fifo(walk=skip) fifo(walk=tenant) fifo(walk=easy)
ftf(agnostic=yes,fill=no) gandiva-fair(trading=no,quantum=5m) gandiva-fair(owner=tenant,quantum=3m)
gavel(objective=water_filling) gavel(objective=fifo) gavel(objective=makespan)
gavel(objective=max_sum,deadlines=yes) gavel(objective=cost,deadlines=yes) gavel(objective=ftf)
gavel(objective=isolated) gavel(agnostic=yes,every=3m,fill=no) gavel(space_sharing=yes)
gavel(space_sharing=yes,objective=makespan) gavel(space_sharing=yes,objective=ftf)
gavel(space_sharing=yes,objective=max_sum) gavel(space_sharing=yes,objective=cost)
gavel(space_sharing=yes,objective=fifo) gavel(space_sharing=yes,objective=water_filling)
gavel(compatible=yes) gavel(compatible=yes,agnostic=yes)
gavel(compatible=yes,objective=isolated) gavel(compatible=yes,every=2m)
gavel(compatible=yes,objective=fifo) gavel(compatible=yes,objective=makespan)
gavel(whole_steps=yes,barrier=yes,patience=2m,counters=yes,by_type=yes)
gavel(centred=yes,left_over=yes) gavel(in_order=yes,shuffled=yes)
gavel(objective=ftf,centred=yes,left_over=yes) gavel(objective=isolated,centred=yes)
gavel(objective=max_sum,centred=yes) gavel(objective=makespan,centred=yes,left_over=yes)
gavel(agnostic=yes,shuffled=yes,centred=yes) gavel(objective=fifo,in_order=yes,every=4m)
gavel(objective=ftf,agnostic=yes,compatible=yes) gavel(objective=fifo,agnostic=yes,in_order=yes)
gavel(objective=fifo,agnostic=yes,compatible=yes)
gavel(every=4m,whole_steps=yes,barrier=yes,patience=30s,counters=yes,by_type=yes,held_back=yes)
genie(walk=strict) gittins(quantum=2m,refresh=30m) gittins(sizes=10m;30m;2h,attained=time)
gittins(step=20m,walk=strict) helios(walk=skip) helios-ces(buffer=1,hold=1,falls=0)
helios-ces(buffer=0,every=3m) heterogeneity-agnostic(chance=yes)
jigsaw(fraction=0.1,gain=1,share=4) liquid(limit=0.6,racks=1,batch=no)
salus(iterations=preempt) salus(iterations=round_robin,share=3)
harmony(walk=skip) singularity(standard=0.3,level=1m,interval=2m)
coda(start=1,every=5m,reserved=0.3,part=0.2,large=2,throttle=cores)
heterogeneity-agnostic(walk=skip) hierarchical(inside=fifo) hierarchical(agnostic=yes,every=3m)
fgd(workload=3*1x300@2;2*2;1*4,walk=skip) fgd(ties=lowest) fgd(covers=0.5)
hived(cells=lab:1x1;ann:1x2;bob:1x1;cid:1x1) hived(cells=lab:1x4;ann:2x2;bob:1x1;cid:2x1)
las(quantum=2m) las(attained=time)
las(walk=strict,quantum=10m) marble(tolerance=0.5) max-min(heterogeneous=no,every=10m)
horus(share=4,exceed=no) horus(share=3,limit=0.5,skip=yes,shortest=yes) yeung(limit=2)
lucid(limit=20m,busy=0) lucid(partition=0.5,busy=0.1,limit=1m)
max-min(fill=no) muri-l(group=2,quantum=30m,every=2m) muri-s(group=1)
muri-s(group=3,window=2) mlfq(thresholds=10m;1h) mlfq(thresholds=5m,starvation=2,walk=strict)
ones(population=4,rounds=3,mutation=1,epoch=5m) ones(population=5,mutation=0,patience=3)
optimus(interval=5m) philly(node_wait=10m,rack_wait=1m,full=0.5,min_run=20m) philly(full=0)
placement(fit=worst) placement(fit=first,within=node) placement(fit=random,walk=skip)
placement(within=rack,walk=easy) placement(within=island,walk=skip)
pollux(population=6,generations=5,p=-10,rescale=2m) pollux(population=6,generations=5,patience=1)
pollux(population=4,generations=3,autoscale=yes,low=0.5,high=0.6)
pop(parts=2) pop(deal=stratified,parts=3) pop(deal=replicated,parts=2,objective=makespan)
pop(parts=2,objective=cost,fill=no) priority(highest=smallest) priority(preempt=no)
priority(walk=strict) sia(p=0.5,wait=2,restart=2m) sia(interval=5m) sjf(walk=skip) sjf(walk=easy)
smd(slot=5m,epsilon=0.5) smd(effort=3) space-sharing(mode=time) space-sharing(mode=mig)
space-sharing(walk=strict) spin(window=4,slots=5,slot=20m) spin(slots=8)
spot(prefer=no) spot(walk=strict) srsf(min_run=10m) srsf(walk=easy) srsf(walk=conservative)
srtf(min_run=10m) srtf(walk=strict) srtf(walk=conservative)
synergy(division=opt) synergy(order=fifo,every=1m) synergy(order=las) themis(lease=5m,fairness=0.2)
themis(fairness=0.95) tiresias(thresholds=10m;1h)
tiresias(thresholds=10m,starvation=2,consolidate=no)
tiresias(index=gittins,step=10m) tiresias(index=started,thresholds=20m) tiresias(fit=worst,
consolidate=no) tiresias(index=arrival,attained=time,thresholds=20m,interval=2m,min_run=5m)
topology-aware(threshold=0.7,walk=skip) topology-aware(threshold=0.5) yarn-cs(within=any)
yarn-cs(within=node,walk=skip)
""".replace(",\n", ",").split()
"""Every parameter away from its default, and what several recipes do by `walk`."""


TURNING = {("e-las", "gangs")}
"""With costs of stopping, jobs of nearly equal index take turns there by the epoch, for ever."""


def cases() -> list[tuple[str, str]]:
    """Each recipe and each variant, on each day."""
    recipes = [*(SMALL.get(name, name) for name in sorted(CATALOGUE)), *VARIANTS]
    return [case for case in product(recipes, DAYS) if case not in TURNING]


DEAR = ("gavel(", "jahani", "ones", "pollux", "sia", "smd")
"""How the names begin of those that solve a programme or search at every decision."""
SECOND_DAYS = ("gangs", "parts", "storm")
"""On which those of `DEAR` that search have the least to search through."""


def often() -> list[tuple[str, str]]:
    """The cases of `make test`: which days a recipe has moves on from recipe to recipe, so that a
    system and its variants have them all among them."""
    catalogue, days = len(CATALOGUE), [*DAYS]
    kept = set[tuple[str, str]]()
    for number, recipe in enumerate(dict.fromkeys(recipe for recipe, _ in cases())):
        some = [days[(number + step) % len(days)] for step in (0, 2, 5)]
        if recipe.startswith("gavel("):
            some = ["crowd", days[number % len(days)]]
        elif recipe.startswith(DEAR):
            some = ["crowd", SECOND_DAYS[number % len(SECOND_DAYS)]]
        elif number < catalogue:
            some.append(days[(number + 3) % len(days)])
        kept.update((recipe, day) for day in some)
    return [case for case in cases() if case in kept]


def fingerprint(text: bytes) -> str:
    """Eight letters that differ where the text does."""
    return hashlib.sha256(text).hexdigest()[:8]


def decided(recipe: str, world: Day, *, validate: bool = True) -> str:
    """What a recipe did on a day."""
    try:
        run = play(recipe, world.works, world.cluster, world.setup, validate=validate)
    except BadInput as refused:
        return f"refused: {refused}"
    ended = [run.ended(work.spec.name) for work in world.works]
    ends = " ".join("-" if end is None else f"{end:.0f}" for end in ended)
    plans = b"".join(recorded(plan) for _, plan in run.diary.steps)
    return f"{ends} {fingerprint(run.text().encode())} {fingerprint(plans)}"


@cache
def record() -> dict[tuple[str, str], str]:
    """What is on record."""
    rows = (line.split(maxsplit=2) for line in RECORD.read_text().splitlines())
    return {(recipe, day): rest for recipe, day, rest in rows}


@pytest.mark.parametrize(
    ("number", "recipe", "day"), [(i, *case) for i, case in enumerate(often())]
)
def test_it_decides_what_is_on_record(number: int, recipe: str, day: str) -> None:
    """One in eight with every invariant checked, and every decision made again with nothing kept
    from those before; the others as they run for users."""
    validate = number % 8 == 0 and not recipe.startswith(DEAR)
    assert decided(recipe, DAYS[day](), validate=validate) == record()[recipe, day]


@pytest.mark.soak
@pytest.mark.parametrize(("recipe", "day"), cases())
def test_it_decides_what_is_on_record_on_every_day(recipe: str, day: str) -> None:
    assert decided(recipe, DAYS[day](), validate=False) == record()[recipe, day]


@pytest.mark.soak
@pytest.mark.parametrize(("recipe", "day"), cases())
def test_it_decides_that_without_anything_kept(recipe: str, day: str) -> None:
    assert decided(recipe, DAYS[day]()) == record()[recipe, day]


def test_nothing_else_is_on_record() -> None:
    assert list(record()) == cases()


if __name__ == "__main__":
    lines = (f"{recipe} {day} {decided(recipe, DAYS[day]())}\n" for recipe, day in cases())
    RECORD.write_text("".join(lines))
