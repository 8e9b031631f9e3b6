"""The attempt's life as docs/live.md shows it, drawn from the tables in `engines/life`.

`python -m ganger.lab.docs.life_page docs/live.md` writes it between the page's two marks anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ganger.engines.life import COURSES, ORDERS, PARTS, Course, Event, State, Status, Table, Want

BEGIN: Final = "<!-- made from engines/life.py by `make pages` -->"
END: Final = "<!-- end of what is made -->"


def page() -> str:
    """The three tables."""
    return "\n".join(
        [
            BEGIN,
            "",
            "What is wanted of an attempt (it begins as RUN):",
            "",
            *_rows("ordered", ORDERS, Want),
            "",
            "How it fares as a whole (it begins as STARTING):",
            "",
            *_rows("what happens", COURSES, Course),
            "",
            "How far each node's part of it is (it begins as UNSENT):",
            "",
            *_rows("what happens", PARTS, Status),
            "",
            END,
        ]
    )


def _rows(what: str, table: Table[State, Event], states: Iterable[State]) -> Iterator[str]:
    """A row for each event and each way it leads; states from which it leads alike share one."""
    every = list(states)
    yield f"| {what} | from | to | what is done |"
    yield "|---|---|---|---|"
    for event in dict.fromkeys(event for _, event in table):
        ways: dict[tuple[str, str], list[State]] = {}
        for state in every:
            if (edge := table.get((state, event))) is not None:
                to = "(stays)" if edge.to == state else edge.to.name
                done = ", ".join(effect.value for effect in edge.effects)
                ways.setdefault((to, done), []).append(state)
        for (to, done), froms in ways.items():
            names = "any" if len(froms) == len(every) else " ".join(one.name for one in froms)
            yield f"| {event.value} | {names} | {to} | {done} |"


def renewed(text: str) -> str:
    """A page with the drawing between its marks made anew. ValueError if it lacks the marks."""
    before, after = text.index(BEGIN), text.index(END) + len(END)
    return text[:before] + page() + text[after:]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renewed(path.read_text()))
