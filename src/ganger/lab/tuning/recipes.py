"""From the words of a user to the recipe of a search, which gets what the experiment says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from ganger.core.errors import BadInput
from ganger.core.units import NEVER
from ganger.lab.simulating.policies import load_policy
from ganger.lab.tuning.own_recipe import TRIALS_MAX
from ganger.mechanisms.common.two_level import Search, searches
from ganger.mechanisms.tuning.trials import Mode
from ganger.recipes import registry
from ganger.workloads.experiment.reading import Experiment


@dataclass(frozen=True)
class Chosen:
    """A recipe that is not made yet, or a user's own class, and the searcher for it."""

    recipe: str
    arguments: dict[str, Any]
    searcher: str
    own: Search | None = None

    @property
    def policy(self) -> Search:
        """The recipe, made. Raises BadInput."""
        if self.own is not None:
            return self.own
        return cast("Search", registry.find(self.recipe).make(**self.arguments))

    @property
    def needs_durations(self) -> bool:
        """Whether the recipe must know how long trials take."""
        return self.own is None and "durations" in registry.find(self.recipe).knowledge

    def settled(
        self, count: int | None, longest: float, epoch: int, experiment: Experiment
    ) -> Chosen:
        """The same, which knows how many configurations there are (None: as many as are wanted),
        after how many epochs curves end, and how long one takes (microseconds). Raises BadInput if
        it wants more configurations, or if nothing would end it."""
        if self.own is not None:
            return self
        arguments, document = dict(self.arguments), experiment.document
        known = registry.find(self.recipe).parameters
        if "epochs" in known and "epochs" not in arguments:
            arguments["epochs"] = float(document.epochs or longest)
        if "epoch" in known and "epoch" not in arguments:
            arguments["epoch"] = epoch
        if "trials" in known and "trials" not in arguments:
            wanted = document.trials
            if wanted is None and count is None and not _limited(experiment):
                raise BadInput(
                    "nothing would end the search",
                    where=f"{experiment.where}: trials",
                    mend="say how many, or give a budget or a deadline",
                )
            available = TRIALS_MAX if count is None else min(count, TRIALS_MAX)
            arguments["trials"] = available if wanted is None else min(wanted, available)
        return replace(self, arguments=arguments).within(count)

    def within(self, count: int | None) -> Chosen:
        """This, unless it wants more configurations than there are. Raises BadInput."""
        wants = getattr(self.policy, "trials", 0)
        if count is not None and wants > count:
            raise BadInput(
                f"{self.recipe} starts {wants} trials, and there are {count} configurations",
                where="recipe",
                mend="use a larger table or space, or other parameters of the recipe",
            )
        return self


def _limited(experiment: Experiment) -> bool:
    budget = experiment.document.budget
    given = (experiment.document.deadline, budget.epochs, budget.gpu_hours, budget.money)
    return any(each is not None for each in given)


def chosen(recipe: str, experiment: Experiment) -> Chosen:
    """The recipe of that name, or a user's own class, with what the experiment says about its
    metric, its resources and its searcher. Raises BadInput."""
    document = experiment.document
    if recipe.partition(":")[0].endswith(".py"):
        own = load_policy(recipe)
        if not searches(own):
            raise BadInput(
                "it asks for no trials",
                where=recipe,
                mend="set `orders = (Spawn,)`, and define `over`",
            )
        return Chosen(recipe, {}, document.searcher or "random", cast("Search", own))
    named, arguments = registry.parse(recipe)
    if named.plane != "tuning":
        raise BadInput(
            f"{named.name} does not decide over the trials of a search",
            where="recipe",
            mend="see `ganger recipes --plane tuning`",
        )
    said: dict[str, Any] = {"mode": Mode(document.mode), "gpus": document.resources.gpus}
    if document.resources.share < 1.0:
        if "share" not in named.parameters:
            raise BadInput(
                f"{named.name} gives trials no stated part of a GPU",
                where=f"{experiment.where}: resources: share",
                mend="leave it out, or use a recipe such as tune.asha",
            )
        said["share"] = document.resources.share
    if document.resources.most_gpus:
        said["most_gpus"] = document.resources.most_gpus
    if experiment.deadline < NEVER:
        said["deadline"] = experiment.deadline
    if document.budget.gpu_hours is not None:
        said["gpu_hours"] = document.budget.gpu_hours
    for name, value in said.items():
        if name in named.parameters and arguments.setdefault(name, value) != value:
            raise BadInput(
                "the experiment says otherwise",
                where=f"{named.name}({name})",
                mend="leave it out of the recipe",
            )
    if document.target is not None and "target" in named.parameters:
        arguments.setdefault("target", document.target)
    needs = getattr(named.make(**arguments), "searcher", "")
    if needs and document.searcher not in (None, needs):
        raise BadInput(
            f"{named.name} goes with the searcher {needs!r}",
            where=f"{experiment.where}: searcher",
            mend="leave it out, or use another recipe",
        )
    return Chosen(named.name, arguments, needs or document.searcher or "random")
