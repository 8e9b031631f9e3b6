"""The map of recipes: one page each, made from its docstring and paper, and a drawn example.

All recipes run the same small example, so that their pictures can be laid side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from ganger.core.spec import ClusterSpec, GpuType, JobSpec, NodeSpec, Role, Shape, TenantSpec
from ganger.core.state.jobs import declare
from ganger.core.units import MINUTE, NEVER, SECOND
from ganger.lab.docs import tuning_pages
from ganger.lab.docs.scaling_pages import chart, scaled, scaling_example
from ganger.lab.docs.serving_pages import drawing, drawn, example, played
from ganger.lab.docs.sharing_pages import MINUTES, beside, sharing_example
from ganger.lab.report.drawing import draw
from ganger.lab.result import Run
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulation import run_one
from ganger.lab.tables import duration
from ganger.recipes.registry import Recipe, find, recipes
from ganger.sim.physics import Costs
from ganger.workloads.measured.published import profiles
from ganger.workloads.trace import Trace

CLUSTER = ClusterSpec(
    (
        NodeSpec(gpus=4, gpu_type="V100", cpus=16000, memory=65536),
        NodeSpec(gpus=4, gpu_type="P100", cpus=16000, memory=65536),
    ),
    (GpuType("V100"), GpuType("P100", speed=0.6)),
    (TenantSpec("ann", quota=4), TenantSpec("bob", quota=4)),
    name="a node of 4 V100 and one of 4 P100",
)
JOBS = (
    # tenant, submitted (min), takes (min), GPUs, least, most, due after (min), model
    ("ann", 0, 90, 4, 1, 4, 0, "resnet50-128"),
    ("ann", 2, 60, 2, 2, 2, 0, "resnet50-16"),
    ("bob", 5, 20, 1, 1, 4, 60, "lm-80"),
    ("ann", 8, 40, 2, 1, 4, 0, "transformer-128"),
    ("bob", 15, 10, 4, 4, 4, 90, "resnet50-128"),
    ("bob", 20, 45, 2, 1, 8, 0, "lm-80"),
    ("ann", 30, 5, 1, 1, 1, 15, "resnet50-16"),
    ("bob", 40, 30, 4, 2, 8, 150, "transformer-128"),
    ("ann", 55, 8, 2, 1, 2, 0, "resnet50-128"),
    ("bob", 70, 15, 1, 1, 4, 0, "lm-80"),
)
HORIZON = 180 * 60.0
"""Seconds drawn; the example is over by then under most recipes."""
DRAWN = {"pollux": "pollux(population=20,generations=20)"}
"""What stands for a recipe whose defaults take long."""
COSTS = Costs(checkpoint=15 * SECOND, restore=15 * SECOND)
HEAD = """# The recipes

Every recipe as `ganger recipes` lists them, with a page for each: what it does, what it needs to
know, where it comes from, what was assumed, and its schedule of one small example, the same for
all. The mechanisms are those that its code names. Made by `ganger recipes --pages docs/recipes`.
`ganger recipes --objective fairness --elastic` and the like find some of them;
`ganger recommend` ([how](../recommend.md)) tries them on your trace.

| recipe | year | improves | must know | sizes | types | what it does |
|:---|---:|:---|:---|:---:|:---:|:---|
"""
REQUESTS = """
## Over requests

Recipes that batch requests to models, as `ganger recipes --plane requests` lists them
([serving](../serving.md)), each with its batches of another small example.

| recipe | year | improves | must know | what it does |
|:---|---:|:---|:---|:---|
"""
TRIALS = """
## Over the trials of a search

Recipes that decide which trials of a search for hyper-parameters go on, as `ganger recipes --plane
tuning` lists them ([tuning](../tuning.md)), each with what it does with another small example.

| recipe | year | improves | must know | what it does |
|:---|---:|:---|:---|:---|
"""
SERVICES = """
## Over services

Recipes that say how many replicas a service has, for `ganger simulate --serving`
([services beside training](../serving.md#services-beside-training)), each with its replicas over
the load of a third example.

| recipe | year | improves | must know | what it does |
|:---|---:|:---|:---|:---|
"""
RULES = """
## Over services and jobs together

Rules by which services and all other jobs share a cluster, each side under a recipe of its own, for
`ganger simulate --sharing` ([one pool](../one-pool.md)), each with what it does with a fourth
example. The `hybrid.` of a name may be left out.

| recipe | year | improves | must know | what it does |
|:---|---:|:---|:---|:---|
"""


def example_jobs() -> Trace:
    """Ten jobs of two tenants: some can change size, some have deadlines."""
    specs = [
        JobSpec(
            name=f"{tenant}{number}",
            tenant=tenant,
            user=tenant,
            model=model,
            submitted=at * MINUTE,
            deadline=(at + due) * MINUTE if due else NEVER,
            shape=Shape((Role(size=gpus, least=least, most=most),)),
        )
        for number, (tenant, at, _, gpus, least, most, due, model) in enumerate(JOBS)
    ]
    lasts = np.array([job[2] for job in JOBS], np.int64) * MINUTE
    return Trace(declare(specs), lasts, name="the example")


@cache
def schedule(name: str) -> Run:
    """What the recipe does with the example, knowing true durations and speeds."""
    setup = Setup(profiles=profiles(), costs=COSTS)
    return run_one(example_jobs(), CLUSTER, DRAWN.get(name, name), setup)


def write_pages(folder: Path) -> int:
    """Write a page and a picture for every recipe, and an index, into `folder`; how many files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = dict(pages())
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return len(files)


def pages(names: list[str] | None = None) -> Iterator[tuple[str, str]]:
    """File names and texts: for every recipe (of `names`) a page and a picture; then the index."""
    planes = ("training", "requests", "serving", "tuning", "hybrid")
    every = [name for plane in planes for name in recipes(plane)]
    for name in every if names is None else names:
        recipe = find(name)
        yield f"{name}.md", page(recipe)
        if recipe.plane == "training":
            yield f"{name}.svg", draw(schedule(name), HORIZON)
        elif recipe.plane == "serving":
            yield f"{name}.svg", chart(scaled(name))
        elif recipe.plane == "hybrid":
            yield f"{name}.svg", draw(beside(name), 60.0 * MINUTES)
        elif recipe.plane == "requests" and drawn(name):
            yield f"{name}.svg", drawing(played(name))
    lines = "".join(_line(find(name)) for name in recipes())
    tables = ("requests", REQUESTS), ("serving", SERVICES), ("tuning", TRIALS), ("hybrid", RULES)
    for plane, begins in tables:
        lines += begins + "".join(map(_short, recipes(plane)))
    yield "README.md", HEAD + lines


def _short(name: str) -> str:
    recipe = find(name)
    cells = (
        f"[{name}]({name}.md)",
        str(recipe.paper.year or ""),
        recipe.paper.objective,
        recipe.needs,
        recipe.summary,
    )
    return f"| {' | '.join(cells)} |\n"


def _line(recipe: Recipe) -> str:
    marks = ["x" if mark else "" for mark in (recipe.elastic, recipe.heterogeneous)]
    cells = (
        f"[{recipe.name}]({recipe.name}.md)",
        str(recipe.paper.year or ""),
        recipe.paper.objective,
        recipe.needs,
        *marks,
        recipe.summary,
    )
    return f"| {' | '.join(cells)} |\n"


def page(recipe: Recipe) -> str:
    """One recipe as a page of Markdown."""
    examples = {
        "training": _on_jobs,
        "requests": example,
        "serving": scaling_example,
        "tuning": tuning_pages.example,
        "hybrid": sharing_example,
    }
    parts = [
        f"# {recipe.name}",
        f"*{recipe.paper}.*",
        f"**Reconstructed:** {recipe.reconstructed}." if recipe.reconstructed else "",
        recipe.doc,
        _facts(recipe),
        _parameters(recipe),
        examples[recipe.plane](recipe),
        "[All recipes](README.md)",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _on_jobs(recipe: Recipe) -> str:
    run = schedule(recipe.name)
    return (
        f"## On a small example\n\n![Which job held which GPU when]({recipe.name}.svg)\n\n"
        f"Ten jobs of two tenants on {CLUSTER.name}; jobs 0, 2, 3, 5, 7, 8 and 9 can change size,"
        " and 2, 4, 6 and 7 have deadlines. Starting again takes 30 s. The recipe knows true"
        " durations and speeds. The upper part shows which job holds which GPU, the lower part the"
        f" phases of each job from its submission. {_drawn(recipe.name)}{_outcome(run)}"
    )


GUIDES = {
    "tuning": "[a search on curves](../tuning.md),"
    " or [among the jobs of a cluster](../services-and-searches.md)",
    "serving": "[services by rates](../services-and-searches.md),"
    " or [with every request](../serving.md#services-beside-training)",
    "requests": "[serving requests](../serving.md)",
    "hybrid": "[services, training and searches in one pool](../one-pool.md)",
}
"""By the plane of a recipe, where it is described how to run it."""


def _facts(recipe: Recipe) -> str:
    source = recipe.make.__module__.removeprefix("ganger.recipes.").replace(".", "/") + ".py"
    found = {
        "Improves": recipe.paper.objective,
        "Must know": recipe.needs,
        "Wants": ", ".join(recipe.wants),
        **(
            {}
            if recipe.plane != "training"
            else {
                "Changes sizes": "yes" if recipe.elastic else "no",
                "Distinguishes GPU types": "yes" if recipe.heterogeneous else "no",
            }
        ),
        "Made of": "; ".join(
            f"`{module}` ({', '.join(names)})" for module, names in recipe.mechanisms.items()
        ),
        "Code": f"[{source}](../../src/ganger/recipes/{source})",
        "How to run it": (
            GUIDES["serving"].partition(" or ")[2]
            if recipe.plane == "serving" and "latencies" in recipe.needs
            else GUIDES.get(recipe.plane, "")
        ),  # rates of requests say nothing of latencies
    }
    return "\n".join(f"- **{name}:** {text}" for name, text in found.items() if text)


def _parameters(recipe: Recipe) -> str:
    if not recipe.parameters:
        return ""
    rows = [f"| `{key}` | `{text}` |" for key, text in recipe.defaults().items()]
    return "\n".join(["| parameter | default |", "|:---|:---|", *rows])


def _drawn(name: str) -> str:
    return f"This is `{DRAWN[name]}`. " if name in DRAWN else ""


def _outcome(run: Run) -> str:
    """Its figures in a sentence."""
    over = run.metrics["jobs_finished"]
    preempted = run.metrics["preemptions"]
    return (
        f"Mean JCT {duration(run.metrics['jct_mean_seconds'])}, makespan"
        f" {duration(run.metrics['makespan_seconds'])}, {preempted:.0f} preemptions,"
        f" {over:.0f} of {len(JOBS)} jobs finished."
    )
