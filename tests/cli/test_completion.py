"""What the shell offers where a recipe is to be named."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from ganger.cli.main import cli
from ganger.recipes import registry

NAMED = {"recipe", "recipes", "current", "inner", "serving", "router"}
OWN = {"inner": "tune.asha", "serving": "scale.threshold", "router": "clockwork"}


def takes_recipes(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Parameter]]:
    """The parameters of all commands below `command` that name recipes."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from takes_recipes(below, (*path, name))
        return
    for param in command.params:
        of_one = path[-1] == "recipe" and param.name == "name"
        if of_one or (param.name in NAMED and not getattr(param, "is_flag", False)):
            yield path, param


def offered(path: tuple[str, ...], param: click.Parameter, typed: str) -> list[str]:
    """What completes `typed` as a value of the parameter."""
    context = click.Context(click.Command(path[-1]))
    return [item.value for item in param.shell_complete(context, typed)]


EVERY = [
    pytest.param(path, param, id=f"{' '.join(path)} {param.name}")
    for path, param in takes_recipes(cli)
]


def test_there_are_such_parameters() -> None:
    assert len(EVERY) > 12


@pytest.mark.parametrize(("path", "param"), EVERY)
def test_whatever_names_a_recipe_is_completed_with_those_that_it_takes(
    path: tuple[str, ...], param: click.Parameter
) -> None:
    name = "clockwork" if path[0] in ("requests", "serve") else OWN.get(str(param.name), "srtf")
    begun = name[:-1]
    assert name in offered(path, param, begun)
    assert all(each.startswith(begun) for each in offered(path, param, begun))
    assert f"fifo,{name}" in offered(path, param, f"fifo,{begun}")


def test_the_recipe_that_is_shown_may_be_of_any_plane() -> None:
    path, param = next(each for each in takes_recipes(cli) if each[0] == ("recipe",))
    every = {name for plane in registry.PLANES for name in registry.recipes(plane)}
    assert set(offered(path, param, "")) == every
