"""Groups whose commands are loaded when they are called; help and completion load none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """A command: its module, its name there, what it does in a line."""

    module: str
    name: str
    summary: str


class LazyGroup(click.Group):
    """A group over sections of entries."""

    def __init__(
        self, name: str, sections: Sequence[tuple[str, Mapping[str, Entry]]], help_: str,
        epilog: str | None = None, params: list[click.Parameter] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            name, help=help_, epilog=epilog, params=params,
            context_settings={"help_option_names": ["-h", "--help"]},
        )  # fmt: skip
        self._sections = sections
        self.entries = {name: entry for _, part in sections for name, entry in part.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order in which people meet them."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, its module loaded."""
        if cmd_name not in self.entries:
            return None
        entry = self.entries[cmd_name]
        command: click.Command = getattr(import_module(entry.module), entry.name)
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
