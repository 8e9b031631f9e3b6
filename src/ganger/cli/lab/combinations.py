"""Which recipes a run is made of: for jobs, services, their requests and trials, and the rule by
which services and other jobs share the cluster. Each may be several; every combination runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ganger.cli import completion
from ganger.core.errors import BadInput

if TYPE_CHECKING:
    from ganger.lab.simulating.setup import Setup


def planes_options(command: Callable[..., None]) -> Callable[..., None]:
    """The recipes beside that for jobs."""
    for option in (
        click.option(
            "--inner",
            "--tuning",
            default="fifo",
            show_default=True,
            shell_complete=completion.inner_recipes,
            metavar="RECIPES",
            help="The recipe that divides what a job of kind `tune` holds among the jobs that name"
            " it as their parent, or among the trials of a scenario's experiments.",
        ),
        click.option(
            "--serving",
            default="",
            shell_complete=completion.serving_recipes,
            metavar="RECIPES",
            help="The recipe for jobs of kind `serve`, the router of their requests, or both, as in"
            " scale.threshold+clockwork. Default: one recipe for all jobs.",
        ),
        click.option(
            "--sharing",
            default="",
            shell_complete=completion.sharing_recipes,
            metavar="RULES",
            help="How services and other jobs share the cluster: separate, priorities, aryl"
            " (`ganger recipes --plane hybrid`). Default: services are asked first, and the others"
            " divide what is left.",
        ),
        click.option(
            "--router",
            default="serve.triton",
            show_default=True,
            shell_complete=completion.routers,
            metavar="RECIPE",
            help="The recipe that batches --requests.",
        ),
    ):
        command = option(command)
    return command


class Combination(NamedTuple):
    """One of each. `inner`: "" where nobody asked for another than experiments have; `router`: ""
    for that of the requests; `label`: what tells it from the others."""

    recipe: str
    inner: str
    serving: str
    router: str
    sharing: str
    label: str

    def setup(self, base: Setup) -> Setup:
        """The set-up of a run of it."""
        traffic = base.traffic
        if traffic is not None and self.router:
            traffic = replace(traffic, router=self.router)
        inner = self.inner or base.inner
        return replace(
            base, inner=inner, serving=self.serving, sharing=self.sharing, traffic=traffic
        )


def combinations(recipe: str, options: Mapping[str, Any]) -> list[Combination]:
    """Every recipe for jobs with every one for services, for trials, and every rule for sharing.
    Raises BadInput for a word that is wrong, also where the trace has no such jobs."""
    from ganger.lab.simulating.policies import load_policy
    from ganger.recipes.registry import make_sharing, split_specs

    names = split_specs(recipe)
    if not names:
        raise BadInput("it names none", where="--recipe", mend="write like fifo,las")
    inners = split_specs(options["inner"]) or [""]
    for inner in filter(None, inners):
        load_policy(inner, plane="tuning")
    servings = [(text, *halves(text)) for text in split_specs(options["serving"]) or [""]]
    if len({control for _, control, _ in servings}) == 1:  # routers tell them apart
        servings = [(router or text, control, router) for text, control, router in servings]
    rules = split_specs(options["sharing"]) or [""]
    for rule in filter(None, rules):
        make_sharing(rule)
    several = [len(each) > 1 for each in (servings, inners, rules)]
    every = list[Combination]()
    for name, (text, control, router), inner, rule in product(names, servings, inners, rules):
        words = (("serving", text), ("tuning", inner), ("sharing", rule))
        differing = [
            f"{what} {word}" for (what, word), many in zip(words, several, strict=True) if many
        ]
        label = ", ".join([name, *differing]) if differing else ""
        every.append(Combination(name, inner, control, router, rule, label))
    return every


def halves(text: str) -> tuple[str, str]:
    """The recipe for services and the router that `scale.threshold+clockwork` names, in either
    order; "" for one that it does not. Raises BadInput."""
    from ganger.lab.simulating.policies import load_policy
    from ganger.recipes import registry

    control = router = ""
    for part in filter(None, _parts(text)):
        own = part.partition(":")[0].endswith(".py")
        if not own and registry.parse(part)[0].plane == "requests":
            registry.make_router(part)
            twice, router = router, part
        else:
            load_policy(part, plane="serving")
            twice, control = control, part
        if twice:
            raise BadInput(
                f"{twice} and {part} decide over the same",
                where="--serving",
                mend="name one recipe for services and one router, as in scale.threshold+clockwork",
            )
    return control, router


def _parts(text: str) -> list[str]:
    """What stands between plus signs that are not in parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "+" and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]
