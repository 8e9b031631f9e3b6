"""The lecture's pieces and worked examples by name: what each shows, its formula, its inputs, and
what its figures need to be read. What works one out is loaded when that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ganger.core.errors import BadInput
from ganger.lab.lessons import fields
from ganger.lab.lessons.fields import Field

if TYPE_CHECKING:
    from ganger.lab.lessons.parts import Lesson

LECTURE: Final = 'Stanford CS229s, Systems for Machine Learning, lecture "Cluster Scheduling"'
"""Whose examples these are."""


@dataclass(frozen=True)
class Piece:
    """One example. `shows`: what, in a sentence; `formula`: as lines; `reading`: what its figures
    rest on, and where to read on; `chapter` of the lecture; `make`: the function that works it out
    from its `fields`."""

    name: str
    title: str
    chapter: int
    shows: str
    formula: tuple[str, ...]
    reading: str
    make: str
    fields: tuple[Field, ...] = ()

    def texts(self, given: Mapping[str, str]) -> dict[str, str]:
        """What stands in each field: what was given, else its default. Raises BadInput for a field
        that there is not."""
        known = {field.name: field.default for field in self.fields}
        for name in given:
            if name not in known:
                has = ", ".join(known) or "nothing to set"
                raise BadInput(f"{self.name} has no {name[:40]!r}", mend=f"it has {has}")
        return known | dict(given)

    def values(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The value of each field. Raises BadInput."""
        texts = self.texts(given)
        return {field.name: field.value(texts[field.name]) for field in self.fields}

    def work(self, given: Mapping[str, str]) -> Lesson:
        """The example worked out. Raises BadInput."""
        values = self.values(given)
        module, _, function = self.make.partition(":")
        made: Lesson = getattr(import_module(f"ganger.lab.lessons.{module}"), function)(**values)
        return made


_JCT: Final = (
    "JCT = finish - arrival",
    "wait = first start - arrival",
    "makespan = last finish - first arrival",
)
_GAVEL: Final = "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies, OSDI 2020"
_RATES: Final = "A 10 30 80; B 50 65 70; C 20 55 60"

PIECES: Final[tuple[Piece, ...]] = (
    Piece(
        "queue", "GPU queue simulator", 0,
        "Jobs arrive at one node and compete for its GPUs: which waits for which?",
        _JCT,
        "Every job is a gang: it starts with all its GPUs or not at all. Run times are known to"
        " sjf and srtf and to no other rule. The lecture says that Eve might wait six hours: so"
        " it is behind Alice on 4 GPUs, and not on 8 (ganger lesson chapter-0).",
        "explorers:queue",
        (
            fields.whole("gpus", "GPUs of the node", 4, 1, fields.GPUS_MAX),
            fields.text("jobs", "Jobs: NAME GPUSxHOURS@ARRIVAL",
                        "Alice 4x6, Bob 2x1, Carol 1x0.5, Dave 2x3, Eve 1x0.25", fields.people),
            fields.choice("recipe", "Recipe", ("fifo", "backfill", "sjf", "srtf", "las")),
        ),
    ),
    Piece(
        "policies", "Policy comparison", 2,
        "The same jobs of one GPU each under several recipes, on one time axis.",
        _JCT,
        "srtf and sjf know the run times; las and mlfq know how long a job has run. Of priorities,"
        " the lecture's table says that 1 is the highest, and its figures (43.5 and 53) need 4 to"
        " be: that is priority(highest=largest).",
        "explorers:policies",
        (
            fields.whole("gpus", "GPUs of the node", 2, 1, 16),
            fields.text("jobs", "Jobs: SECONDS@ARRIVAL!PRIORITY",
                        "30@0!3, 10@0!1, 25@1!2, 40@4!4", fields.tasks),
            fields.text("recipes", "Up to six recipes",
                        "fifo, srtf, priority(highest=smallest), priority(highest=largest),"
                        " las(attained=time, quantum=1s), mlfq(thresholds=10s)", fields.recipes),
        ),
    ),
    Piece(
        "queueing-delay", "Queueing delay by request size", 3,
        "How long jobs wait for their first start, by the number of GPUs that they ask for.",
        ("wait = first start - arrival",),
        "Weng et al., MLaaS in the Wild, NSDI 2022, measured on Alibaba's cluster that larger"
        " requests wait longer. Backfill does that here, since small jobs pass large ones; under a"
        " strict fifo the size does not decide. Jobs are made up after published distributions"
        " and offer 0.8 of what the cluster can do: compare the direction, not the hours.",
        "explorers:queueing_delay",
        (
            fields.choice("kind", "Jobs like those of", ("philly", "helios", "poisson", "gavel")),
            fields.whole("jobs", "How many jobs", 800, 1, 2000),
            fields.whole("seed", "Seed", 0, 0, 10**9),
            fields.text("cluster", "Cluster", "4x8xV100", fields.cluster),
            fields.text("recipe", "Recipe", "backfill", fields.one_recipe),
        ),
    ),
    Piece(
        "sensitivity", "Throughput sensitivity", 4,
        "How much faster each job is on newer GPUs, and which job should have the fast one.",
        ("speedup of i on j = T(i, j) / T(i, first type)",
         "maximise sum over i, j of T(i, j) X(i, j)"),
        f"T holds measured iterations a second. {_GAVEL}, section 2: speedups differ by model, so"
        " the job that gets the fast GPU decides the total.",
        "explorers:sensitivity",
        (
            fields.text("types", "GPU types, the slowest first", "K80, P100, V100", fields.names),
            fields.text("rates", "Jobs: NAME and iterations/s on each type",
                        "Transformer 10 30 80; ResNet 50 65 70", fields.rates),
        ),
    ),
    Piece(
        "gavel", "Gavel's assignment", 5,
        "Which job should spend which part of its time on which type of GPU.",
        ("maximise sum over i, j of T(i, j) X(i, j), or the least of eff(i) / equal(i)",
         "sum over j of X(i, j) <= 1;  sum over i of X(i, j) <= N(j);  X >= 0",
         "eff(i) = sum over j of T(i, j) X(i, j)"),
        f"{_GAVEL}, section 3. Each job has one GPU. equal(i) is the throughput with equal time on"
        " every GPU. The largest least ratio is one number; the X that reaches it need not be the"
        " only one. The lecture's own figures: ganger lesson assignment.",
        "explorers:gavel",
        (
            fields.text("types", "GPUs of each type", "2 K80, 1 P100, 1 V100",
                        fields.counted_types),
            fields.text("rates", "Jobs: NAME and samples/s on each type", _RATES, fields.rates),
            fields.text("yours", "Your assignment: a type for each job", "V100, P100, K80",
                        fields.names),
        ),
    ),
    Piece(
        "step-time", "Placement calculator", 6,
        "What slower links between a job's GPUs add to each of its steps.",
        ("one way: step = compute + size / bandwidth",
         "ring of n: step = compute + 2 (n - 1) / n x size / bandwidth"),
        "The lecture sends the gradients once; a ring all-reduce moves 2 (n - 1) / n times their"
        " size (Patarasuk and Yuan, JPDC 2009). Nothing overlaps here. GB/s are bytes: 10 GB/s is"
        " a link of 80 Gb/s.",
        "explorers:step_time",
        (
            fields.decimal("compute", "Compute time of a step, ms", 100, 0, 100_000, "any"),
            fields.decimal("gradients", "Size of the gradients, GB", 1, 0, 10_000, "any"),
            fields.whole("workers", "Workers", 4, 2, 4096),
            fields.text("links", "Links: NAME and GB/s", "NVLink 600, InfiniBand 25, Ethernet 10",
                        fields.links),
        ),
    ),
    Piece(
        "trade-off", "Fairness against throughput", 7,
        "What total throughput is left as every job is promised more of an equal share.",
        ("maximise sum over i of eff(i)",
         "eff(i) >= w x r x equal(i), r being the largest least ratio that there is"),
        f"{_GAVEL}, section 4, with the promise as a floor. What fairness costs depends on what a"
        " job may use: in gangs of two on one type at a time the lecture's 19.2 % hold; where"
        " jobs spread over any mix they are 2.5 % (ganger lesson fairness).",
        "explorers:trade_off",
        (
            fields.decimal("weight", "Fairness w, from 0 to 1", 0.5, 0, 1, "0.01"),
            fields.choice("use", "A job uses", ("gangs of 2", "one GPU", "any mix")),
            fields.text("types", "GPUs of each type", "2 V100, 2 K80", fields.counted_types),
            fields.text("rates", "Jobs: NAME and samples/s of a GPU", "A 80 10; B 70 50",
                        fields.rates),
        ),
    ),
    Piece(
        "four-jobs", "Four jobs", 2,
        "The queueing disciplines on four jobs and two GPUs.",
        _JCT,
        "Every rule is simulated; the two optima are found by trying all schedules that switch at"
        " whole seconds, with shortest remaining first after the last arrival (McNaughton, 1959).",
        "four_jobs:four_jobs",
        (fields.text("durations", "Seconds of jobs 0 to 3", "30,10,25,40", fields.durations),),
    ),
    Piece(
        "chapter-0", "Alice to Eve", 0, "Alice to Eve share a cluster: which jobs wait for which.",
        _JCT, "On 8 and on 4 GPUs, with a strict queue and with backfill.",
        "worked_examples:chapter_0",
    ),
    Piece(
        "gang", "All or nothing", 3, "Two gangs of 4 on 6 GPUs.", (),
        "Weng et al., NSDI 2022: 85 % of the jobs of Alibaba's trace start as gangs.",
        "worked_examples:gang",
    ),
    Piece(
        "assignment", "Three jobs, four GPUs", 5,
        "Which job on which GPU type: 135 by turns, 185 at best.", (),
        f"{_GAVEL}.", "worked_examples:assignment",
    ),
    Piece(
        "placement", "Moving gradients", 6, "What a slow link costs.",
        ("time = size / bandwidth",), "The lecture's figures are one way.",
        "worked_examples:placement",
    ),
    Piece(
        "fairness", "The price of fairness", 7,
        "What max-min fairness costs: three readings, three answers.", (),
        f"{_GAVEL}.", "worked_examples:fairness",
    ),
)  # fmt: skip
LESSONS: Final[dict[str, Piece]] = {piece.name: piece for piece in PIECES}
"""By name: the eight pieces in the order of the lecture's chapters, then its worked examples."""


def lesson(name: str) -> Piece:
    """The piece of that name. Raises BadInput."""
    if name not in LESSONS:
        raise BadInput(f"no lesson {name[:40]!r}", mend=f"there are {', '.join(LESSONS)}")
    return LESSONS[name]
