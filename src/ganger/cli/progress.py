"""A progress bar on standard error, if that is a terminal."""

from __future__ import annotations


class Bar:
    """A bar with a title, shown while its `with` block lasts."""

    def __init__(self, title: str, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(), console=console, transient=True,
            disable=quiet or not console.is_terminal,
        )  # fmt: skip
        self._all = self._bar.add_task(title, total=1.0)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def show(self, done: float, total: float) -> None:
        """So much of so much is done."""
        self._bar.update(self._all, completed=done, total=total)

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
