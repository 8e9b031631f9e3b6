"""A progress bar on standard error, if that is a terminal."""

from __future__ import annotations

from ganger.core.units import SECOND, format_duration

WORTH_SAYING = 0.05
"""The share from which on it is forecast how long the rest takes."""


def forecast(elapsed_seconds: float | None, share: float) -> str:
    """How long the rest takes if it goes on as it did; "" while too little is done to say."""
    if elapsed_seconds is None or not WORTH_SAYING <= share < 1:
        return ""
    rest = round(elapsed_seconds * (1 / share - 1))
    return f"about {format_duration(rest * SECOND)} left"


class Bar:
    """A bar with a title, shown while its `with` block lasts."""

    def __init__(self, title: str, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._all = self._bar.add_task(title, total=1.0, left="")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def show(self, done: float, total: float) -> None:
        """So much of so much is done."""
        left = forecast(self._bar.tasks[0].elapsed, done / total)
        self._bar.update(self._all, completed=done, total=total, left=left)

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
