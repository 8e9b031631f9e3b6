"""The recipes as cards, and what each makes of the same small example, drawn."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ganger.core.errors import GangerError
from ganger.lab.docs.recipe_pages import pages
from ganger.recipes.registry import PLANES, Recipe, find, recipes
from ganger.web.background.cards import PLANE_WORDS, Asked, Card


def cards(asked: Asked, tell: Callable[..., None]) -> list[Card]:
    """All recipes. The cards come at once as a part called `cards`. Each drawing follows as a part
    called like its recipe."""
    names = [name for plane in PLANES for name in recipes(plane)]
    every = [card(find(name)) for name in names]
    tell(name="cards", part=[msgspec.to_builtins(each) for each in every], total=len(names))
    for done, name in enumerate(names, 1):
        picture = drawing(name)
        if picture:
            tell(name=name, part=picture)
        tell(done=done, total=len(names))
    return every


def drawing(name: str) -> str:
    """The picture of a recipe, empty if it has none."""
    try:
        made = pages([name])
        next(made)  # its page in words
        file, text = next(made)
    except GangerError:  # one that cannot run the example here
        return ""
    return text if file == f"{name}.svg" else ""


def card(recipe: Recipe) -> Card:
    """What there is to know of one."""
    over = PLANE_WORDS[recipe.plane]
    return Card(
        name=recipe.name,
        over=over,
        summary=recipe.summary,
        doc=recipe.doc,
        paper=str(recipe.paper),
        year=recipe.paper.year,
        improves=sorted(recipe.objectives),
        knows=sorted(recipe.knowledge),
        assumed=recipe.reconstructed,
        wants=list(recipe.wants),
        elastic=recipe.elastic,
        types=recipe.heterogeneous,
        made=[f"{module} ({', '.join(each)})" for module, each in recipe.mechanisms.items()],
        parameters=recipe.defaults(),
        code=recipe.make.__module__.replace(".", "/") + ".py",
    )
