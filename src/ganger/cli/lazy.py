"""Groups whose commands are loaded when they are called; help and completion load none."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """A command: its module, its name there, what it does in a line."""

    module: str
    name: str
    summary: str


ELSEWHERE: Final = {
    "squeue": "queue", "sbatch": "submit", "srun": "submit --wait", "salloc": "shell",
    "sinfo": "nodes", "scancel": "cancel", "sacct": "history", "sshare": "fairshare",
    "scontrol": "show", "sreport": "usage", "sacctmgr": "quota", "sstat": "show",
    "gqueue": "queue", "gbatch": "submit", "gcancel": "cancel", "gflowd": "up", "ginfo": "nodes",
    "gstat": "usage", "sky": "submit", "ps": "queue", "kill": "cancel", "list": "queue",
    "run": "submit", "start": "up", "stop": "down", "info": "nodes", "launch": "submit",
}  # fmt: skip
"""What commands of other schedulers are called here."""


class Suggesting(click.Group):
    """A group that says which command may have been meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with a suggestion where there is no such command."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            word, known = args[0], self.list_commands(ctx)
            if word.startswith("-"):
                raise
            near = get_close_matches(word, known, 1, 0.6)
            if ELSEWHERE.get(word, "").split(" ")[0] in known:
                hint = f"Here it is {ctx.command_path} {ELSEWHERE[word]}."
            elif near:
                hint = f"Did you mean {ctx.command_path} {near[0]}?"
            else:
                hint = f"`{ctx.command_path} --help` lists the commands."
            raise click.UsageError(f"No such command {word!r}. {hint}", ctx) from None


class LazyGroup(Suggesting):
    """A group over sections of entries."""

    def __init__(
        self,
        name: str,
        sections: Sequence[tuple[str, Mapping[str, Entry]]],
        help_: str,
        epilog: str | None = None,
        params: list[click.Parameter] | None = None,
    ) -> None:
        super().__init__(
            name,
            help=help_,
            epilog=epilog,
            params=params,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self._sections = sections
        self.entries = {name: entry for _, part in sections for name, entry in part.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order in which people meet them."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, its module loaded."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(_loaded(entry.module), entry.name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and summaries."""
        for title, part in self._sections:
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in part.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands that begin so."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.entries.items()
            if name.startswith(incomplete)
        ]


def _loaded(name: str) -> ModuleType:
    """The module. What it imports stays: no collection of garbage looks through that, which would
    take longer than the garbage is worth, neither now nor when the process ends."""
    if name in sys.modules:
        return sys.modules[name]
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()
