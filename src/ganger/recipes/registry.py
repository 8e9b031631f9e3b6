"""Recipes by name, with their papers and parameters.

A recipe is a function whose parameters have defaults and that returns a policy, a router, or
a rule for sharing. Its
module is named in `PLANES`, so that listing imports nothing. It is written `name` or `name(x=1)`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar, cast, get_type_hints

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.serving.router import Router
from ganger.mechanisms.hybrid.sharing import Sharing
from ganger.recipes.anatomy import mechanisms_of
from ganger.recipes.parameters import Amount as Amount
from ganger.recipes.parameters import Count as Count
from ganger.recipes.parameters import Duration as Duration
from ganger.recipes.parameters import Many as Many
from ganger.recipes.parameters import Name as Name
from ganger.recipes.parameters import Part as Part
from ganger.recipes.parameters import Period as Period
from ganger.recipes.parameters import Positive as Positive
from ganger.recipes.parameters import Power as Power
from ganger.recipes.parameters import Tick as Tick
from ganger.recipes.parameters import Within as Within
from ganger.recipes.parameters import accepts, convert, described, written


@dataclass(frozen=True)
class Paper:
    """Where a recipe comes from."""

    title: str
    authors: str = ""
    venue: str = ""
    year: int = 0
    objective: str = ""

    def __str__(self) -> str:
        where = f"{self.venue} {self.year}".strip() if self.year else self.venue
        return ", ".join(part for part in (self.title, self.authors, where) if part)


@dataclass(frozen=True)
class Recipe:
    """One registered recipe. `needs`: what it must know about durations or speeds
    ("nothing", "durations", "throughputs", ...); `reconstructed`: what was assumed where the
    publication does not say, or ""; `wants`: what a workload or a cluster must have one of for the
    recipe to be more than a plain queue, as words of `WANTS`; `durations_with`: by parameter, the
    values with which it must know durations, too."""

    name: str
    make: Callable[..., Policy | Router | Sharing]
    paper: Paper
    needs: str = "nothing"
    reconstructed: str = ""
    wants: tuple[str, ...] = ()
    durations_with: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)

    def needs_with(self, arguments: dict[str, Any]) -> str:
        """`needs` with these arguments."""
        more = any(arguments.get(key) in values for key, values in self.durations_with.items())
        return f"durations, {self.needs}" if more else self.needs

    @property
    def plane(self) -> str:
        """Which of `PLANES` it is of."""
        return next(plane for plane, names in PLANES.items() if self.name in names)

    @property
    def doc(self) -> str:
        """The recipe's own text."""
        return inspect.cleandoc(self.make.__doc__ or "")

    @property
    def summary(self) -> str:
        """Its first sentence, on one line."""
        return self.doc.split("\n\n")[0].replace("\n", " ")

    @property
    def objectives(self) -> frozenset[str]:
        """What the publication sets out to improve, in lower case."""
        return _words(self.paper.objective)

    @property
    def knowledge(self) -> frozenset[str]:
        """What it must know, as a set: empty, durations, throughputs or both."""
        return _words(self.needs) - {"nothing"}

    @property
    def mechanisms(self) -> dict[str, list[str]]:
        """The modules that it is made of, as `ordering/queue` in `mechanisms`, or as
        `training/placement/hived` beside the recipe in `recipes`; and what it takes from each."""
        return mechanisms_of(
            self.make, _MODULES.values(), lambda function: _folded(function) in _MODULES
        )

    def defaults(self) -> dict[str, str]:
        """Its parameters, each with its default as one would write it."""
        hints = get_type_hints(self.make, include_extras=True)
        return {key: written(value, hints[key]) for key, value in self.parameters.items()}

    def values(self) -> dict[str, dict[str, Any]]:
        """What each parameter may be: plain data as of `parameters.accepts`, with its default, and
        the same in `words`."""
        hints, defaults = get_type_hints(self.make, include_extras=True), self.defaults()
        return {
            key: {**accepts(hints[key]), "default": defaults[key], "words": described(hints[key])}
            for key in self.parameters
        }

    @property
    def elastic(self) -> bool:
        """Whether it gives jobs other sizes than they ask for."""
        return not ELASTIC.isdisjoint(map(_last, self.mechanisms))

    @property
    def heterogeneous(self) -> bool:
        """Whether it tells GPU types apart by how fast jobs run on them."""
        return not HETEROGENEOUS.isdisjoint(map(_last, self.mechanisms))

    @property
    def shares_plain(self) -> bool:
        """Whether only jobs share GPUs under it that ask for whole GPUs and nothing else."""
        return not SHARES_PLAIN.isdisjoint(map(_last, self.mechanisms))


def _last(module: str) -> str:
    return module.rpartition("/")[2]


ELASTIC = frozenset(
    (
        "elastic",
        "resizing",
        "pollux",
        "sia",
        "ones",
        "dorm",
        "singularity",
        "admission",
        "renting",
        "joint",
    )
)
"""The mechanisms that change sizes."""
HETEROGENEOUS = {"program", "pop", "sia", "allox", "gandiva_fair", "admission", "renting", "joint"}
"""The mechanisms that tell GPU types apart."""
SHARES_PLAIN = frozenset(("grouping", "two_classes"))
"""The mechanisms by which only jobs share that ask for whole GPUs and nothing else."""
WANTS = (
    "elastic jobs",
    "GPU types",
    "deadlines",
    "tenants",
    "quotas",
    "parts of GPUs",
    "priorities",
    "CPUs",
    "revocable nodes",
    "idle nodes",
    "neighbours that disturb",
    "models that share GPUs",
    "links",
    "machines for rent",
    "GPU clocks",
)
"""The words of `Recipe.wants`."""

ALSO_CALLED = {
    "vaibhav": "elastic-scaling", "saxena": "elastic-scaling", "wang": "non-intrusive",
    "qssf": "helios", "ces": "helios-ces", "yarn": "yarn-cs",
    "tiresias-l": "tiresias", "tiresias-g": "tiresias(index=gittins)",
    "1d-las": "las(attained=time)", "2d-las": "las",
    "afs-l": "afs", "afs-p": "afs(lengths=p)", "elastic-tiresias": "edl",
    "mps": "space-sharing(mode=mps)", "mig": "space-sharing(mode=mig)",
    "muri": "muri-s", "synergy-tune": "synergy", "synergy-opt": "synergy(division=opt)",
}  # fmt: skip
"""What else systems and their variants are called: names of authors and of variants, each with the
recipe and the arguments that it is."""
_T, _S = "ganger.recipes.training.", "ganger.recipes.serving."
CATALOGUE: dict[str, str] = {
    **dict.fromkeys(("fifo", "sjf", "srtf", "srsf", "priority", "edf"), _T + "baselines"),
    **dict.fromkeys(("las", "mlfq", "tiresias", "gittins", "e-las"), _T + "attained.recipes"),
    "backfill": _T + "backfill",
    **dict.fromkeys(("drf", "max-min", "ftf", "hierarchical"), _T + "fairness.recipes"),
    **dict.fromkeys(("themis", "gandiva-fair", "astraea"), _T + "fairness.recipes"),
    **dict.fromkeys(("gavel", "pop"), _T + "gavel.recipes"),
    **dict.fromkeys(("pollux", "sia"), _T + "goodput.recipes"),
    **dict.fromkeys(("optimus", "afs", "elastic-scaling"), _T + "elasticity.recipes"),
    **dict.fromkeys(("marble", "non-intrusive", "dragon", "elan"), _T + "elasticity.recipes"),
    **dict.fromkeys(("edl", "ones", "smd", "singularity"), _T + "elasticity.recipes"),
    **dict.fromkeys(("placement", "delay-scheduling"), _T + "placement.recipes"),
    **dict.fromkeys(("heterogeneity-agnostic", "topology-aware"), _T + "placement.recipes"),
    **dict.fromkeys(("harmony", "hived", "spin", "fgd"), _T + "placement.recipes"),
    **dict.fromkeys(("space-sharing", "spot", "cpu-disaggregation", "synergy"), _T + "resources"),
    **dict.fromkeys(("yarn-cs", "helios", "helios-ces"), _T + "production"),
    **dict.fromkeys(("philly", "ffdl", "ali-mlaas"), _T + "production"),
    **dict.fromkeys(("gandiva", "muri-s", "muri-l", "co-scheml", "yeung"), _T + "sharing.recipes"),
    **dict.fromkeys(("horus", "lucid", "antman", "tgs", "kubeshare"), _T + "sharing.recipes"),
    **dict.fromkeys(("salus", "jigsaw"), _T + "sharing.in_turn"),
    **{name: f"{_T}sharing.{name}" for name in ("dynamoml", "liquid", "coda")},
    **dict.fromkeys(("allox", "dorm"), _T + "programmes.recipes"),
    **dict.fromkeys(("genie", "chronus"), _T + "deadlines.recipes"),
    **dict.fromkeys(("jpas", "parrot", "ada-srsf", "gadget"), _T + "network.recipes"),
    **dict.fromkeys(("oasis", "aonline"), _T + "market.recipes"),
    "rifling": _T + "learned.recipes",
    "aryl": _T + "elasticity.aryl",
    **dict.fromkeys(
        ("andreas", "cynthia", "fc2", "gpoeo", "jahani", "mlcloudprice"), _T + "renting.recipes"
    ),
}
"""Name of every recipe for training jobs, and the module that defines it."""
PLANES: dict[str, dict[str, str]] = {
    "training": CATALOGUE,
    "serving": {
        **dict.fromkeys(
            ("scale.static-peak", "scale.reactive", "scale.threshold", "scale.asked"),
            "ganger.recipes.serving.scaling",
        ),
        **dict.fromkeys(("mark", "barista", "inferline"), _S + "planning.recipes"),
        "gslice": _S + "sharing.recipes",
        "mig-serving": _S + "slices.recipes",
    },
    "tuning": {
        **dict.fromkeys(
            ("tune.random", "tune.grid", "tune.sha", "tune.hyperband", "tune.asha", "tune.bohb"),
            "ganger.recipes.tuning.baselines",
        ),
        "tune.median": "ganger.recipes.tuning.median",
        "tune.pbt": "ganger.recipes.tuning.population",
        "hypersched": "ganger.recipes.tuning.hypersched",
        "hyperdrive": "ganger.recipes.tuning.hyperdrive",
        "hermes": "ganger.recipes.tuning.hermes",
        "rubberband": "ganger.recipes.tuning.rubberband",
        "seer": "ganger.recipes.tuning.seer",
        "fluid": "ganger.recipes.tuning.fluid",
        "easeml": "ganger.recipes.tuning.easeml",
    },
    "requests": {
        **dict.fromkeys(
            ("serve.no-batch", "serve.fixed-batch", "serve.triton", "serve.round-robin",
             "serve.least-loaded", "serve.power-of-two", "serve.dedicated", "serve.bentoml",
             "serve.clairvoyant"),
            "ganger.recipes.serving.baselines",
        ),
        **dict.fromkeys(
            ("cache.lru", "cache.lfu", "cache.random", "cache.clairvoyant", "gilman"),
            "ganger.recipes.serving.caches",
        ),
        **dict.fromkeys(
            ("clipper", "nanily", "clockwork", "dybatch", "ebird", "model-switching", "swayam"),
            "ganger.recipes.serving.systems",
        ),
        **dict.fromkeys(
            ("serve.continuous-batching", "serve.fair"), "ganger.recipes.serving.continuous"
        ),
        **dict.fromkeys(("serve.composed",), "ganger.recipes.serving.composed"),
        **dict.fromkeys(("nexus",), "ganger.recipes.serving.nexus.recipes"),
        **dict.fromkeys(("tolerance-tiers", "cocktail", "parm"), _S + "ensembles.recipes"),
        **dict.fromkeys(("irina",), _S + "sharing.recipes"),
    },
    "hybrid": {
        **dict.fromkeys(
            ("hybrid.first", "hybrid.separate", "hybrid.priorities"),
            "ganger.recipes.hybrid.baselines",
        ),
        "hybrid.aryl": "ganger.recipes.hybrid.loans",
    },
}  # fmt: skip
"""By what a recipe decides over, the same: all jobs; services (`--serving`); the trials of one
search (`--inner`); requests to models (`ganger simulate REQUESTS --models FILE`); how services and
other jobs share a cluster, each under a recipe of its own (`--sharing`)."""
_MODULES = {name: module for plane in PLANES.values() for name, module in plane.items()}

Makes = TypeVar("Makes", bound=Callable[..., Policy | Router | Sharing])
_registered: dict[str, Recipe] = {}


def recipe(
    paper: Paper,
    *,
    name: str = "",
    needs: str = "nothing",
    reconstructed: str = "",
    wants: tuple[str, ...] = (),
    durations_with: dict[str, tuple[Any, ...]] | None = None,
) -> Callable[[Makes], Makes]:
    """Register the decorated function under `name`, or its own name with dashes."""

    def register(make: Makes) -> Makes:
        called = name or make.__name__.replace("_", "-")
        defaults = {key: p.default for key, p in inspect.signature(make).parameters.items()}
        _registered[called] = Recipe(
            called, make, paper, needs, reconstructed, wants, durations_with or {}, defaults
        )
        return make

    return register


def _words(text: str) -> frozenset[str]:
    """`JCT, fairness` as a set, spelt in one way."""
    words = (word.strip().lower().replace("utilization", "utilisation") for word in text.split(","))
    return frozenset(word for word in words if word)


def recipes(plane: str = "training") -> list[str]:
    """The names of all recipes of one of `PLANES`, in alphabetical order."""
    return sorted(PLANES[plane])


def _folded(name: str) -> str:
    """Names are the same in capitals, and with _ for -."""
    return name.strip().lower().replace("_", "-")


def find(name: str) -> Recipe:
    """The recipe of that name, or of which it is a variant. Raises BadInput with the nearest."""
    called = _folded(name)
    called = ALSO_CALLED.get(called, called).partition("(")[0]
    if called not in _MODULES:
        from difflib import get_close_matches

        near = get_close_matches(called, [*_MODULES, *ALSO_CALLED], 3, 0.5)
        mend = f"did you mean {' or '.join(near)}?" if near else "see `ganger recipes`"
        raise BadInput(f"no recipe {name!r}", mend=mend)
    import_module(_MODULES[called])
    return _registered[called]


def chosen(
    among: Iterable[Recipe],
    *,
    objective: str | None = None,
    mechanism: str | None = None,
    year: str | None = None,
    needs: str | None = None,
    elastic: bool = False,
    heterogeneous: bool = False,
) -> list[Recipe]:
    """The recipes that pass every filter that is given, as `ganger recipes --help` explains them.

    Raises BadInput for a word that no recipe has.
    """
    found = list(among)
    if objective is not None:
        word = next(iter(_words(objective)), "")
        _known(word, frozenset[str]().union(*(each.objectives for each in found)), "--objective")
        found = [each for each in found if word in each.objectives]
    if mechanism is not None:
        tags = {each.name: _tags(each) for each in found}
        _known(mechanism.lower(), frozenset[str]().union(*tags.values()), "--mechanism")
        found = [each for each in found if mechanism.lower() in tags[each.name]]
    if year is not None:
        first, last = _years(year)
        found = [each for each in found if first <= each.paper.year <= last and each.paper.year]
    if needs is not None:
        told = _words(needs) - {"nothing"}
        for word in sorted(told):
            _known(word, frozenset(("durations", "throughputs")), "--needs")
        found = [each for each in found if each.knowledge <= told]
    found = [each for each in found if each.elastic or not elastic]
    return [each for each in found if each.heterogeneous or not heterogeneous]


def _tags(recipe: Recipe) -> frozenset[str]:
    """Its mechanisms, their families, and what it takes from them, in lower case."""
    parts = recipe.mechanisms
    words = [word for module in parts for word in (*module.split("/"), *parts[module])]
    return frozenset(word.lower() for word in words)


def _known(word: str, words: frozenset[str], where: str) -> None:
    if word not in words:
        raise BadInput(f"no recipe has {word!r}", where=where, mend=nearest(word, sorted(words)))


def _years(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not (first + last).isdecimal() or (first and not first.isdecimal()):
        raise BadInput(
            f"{text!r} is not a valid year", where="--year", mend="write like 2020 or 2018-2020"
        )
    return int(first or 1), int(last or (9999 if dash else first))


def nearest(word: str, words: list[str]) -> str:
    """What was probably meant by `word`, as advice."""
    from difflib import get_close_matches

    near = get_close_matches(word, words, 3, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(words)}"


def split_specs(text: str) -> list[str]:
    """`a,b(x=1,y=2)` into `a` and `b(x=1,y=2)`. Raises BadInput for an open parenthesis."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text + ","):
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    if depth:
        raise BadInput(
            f"{text!r} has unbalanced parentheses",
            where="recipe",
            mend="write name or name(parameter=value)",
        )
    return [part for part in parts if part]


_SPEC = re.compile(r"([\w.-]+)(?:\((.*)\))?", re.DOTALL)


def parse(spec: str, *, bounded: bool = True) -> tuple[Recipe, dict[str, Any]]:
    """A recipe and its arguments from `name(parameter=value, ...)`. Unless `bounded`, values may be
    out of range, as in a journal of a version that accepted them. Raises BadInput."""
    match = _SPEC.fullmatch(spec.strip())
    if not match:
        raise BadInput(
            f"{spec!r} is not a valid recipe", mend="write name or name(parameter=value)"
        )
    found = find(match[1])
    hints = get_type_hints(found.make, include_extras=True)
    variant = ALSO_CALLED.get(_folded(match[1]), "")
    arguments = parse(variant)[1] if "(" in variant else {}
    implied = set(arguments)
    for part in split_specs(match[2] or ""):
        key, equals, value = part.partition("=")
        key = key.strip().lower().replace("-", "_")
        if not equals or key not in found.parameters:
            known = ", ".join(found.parameters) or "none"
            raise BadInput(
                f"recipe {found.name!r} has no parameter {key!r}", mend=f"it has: {known}"
            )
        if key in implied:
            mend = f"write {found.name}({key}={value.strip()})"
            raise BadInput(f"{match[1]} is {variant}", where=f"{match[1]}({key})", mend=mend)
        if key in arguments:
            raise BadInput("it is listed twice", where=f"{found.name}({key})", mend="give it once")
        where, text, default = f"{found.name}({key})", value.strip(), found.parameters[key]
        if text == written(default, hints[key]):  # also one that no other text means, like never
            arguments[key] = default
        else:
            arguments[key] = convert(hints[key], text, where, bounded=bounded)
    return found, arguments


def make(spec: str, *, bounded: bool = True) -> Policy:
    """The policy that `spec` describes, as `parse` reads it. Raises BadInput."""
    named, arguments = parse(spec, bounded=bounded)
    if named.plane == "hybrid":
        raise BadInput(
            f"{named.name} is a rule by which two recipes share a cluster",
            where="recipe",
            mend=f"use it as --sharing {named.name}",
        )
    if named.plane == "requests":
        raise BadInput(
            f"{named.name} decides over requests, not over jobs",
            where="recipe",
            mend=f"ganger simulate REQUESTS --models FILE --recipe {named.name}",
        )
    return cast("Policy", named.make(**arguments))


def make_sharing(spec: str, *, bounded: bool = True) -> Sharing:
    """How services and other jobs share, as `spec` describes it; `hybrid.` may be left out. Raises
    BadInput."""
    full = f"hybrid.{spec.strip()}"
    short = _folded(full.partition("(")[0]) in PLANES["hybrid"]
    named, arguments = parse(full if short else spec, bounded=bounded)
    if named.plane != "hybrid":
        raise BadInput(
            f"{named.name} does not say how services and other jobs share a cluster",
            where="--sharing",
            mend="there are " + ", ".join(each[len("hybrid.") :] for each in recipes("hybrid")),
        )
    return cast("Sharing", named.make(**arguments))


def make_router(spec: str) -> Router:
    """The router that `spec` describes, as `parse` reads it. Raises BadInput."""
    named, arguments = parse(spec)
    if named.plane != "requests":
        raise BadInput(
            f"{named.name} decides over jobs, not over requests",
            where="recipe",
            mend="see `ganger recipes --plane requests`",
        )
    return cast("Router", named.make(**arguments))
