"""What users read is plain: four habits stay out of help, errors and pages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tidy.english import ALLOWED, PAGES, ROOT, SOURCE, habits, in_page, in_source, strings

PLANTED = [
    ("evicts who came last", "who"),
    ("whoever is moved is packed", "who"),
    ("jobs of those who wait", "who"),
    ("it waits for 4 GPUs since 1.5 s", "since"),
    ("idle since {} s", "since"),
    ("it has been down since two hours", "since"),
    ("'25:00' is no time", "is no"),
    ("these are no jobs", "is no"),
    ("the policy was told durations", "told"),
    ("the agent said nothing", "told"),
]
PLAIN = [
    "evicts jobs that came last",
    "users who may submit, and an administrator who decides",
    "this page says who may make it do that",
    "it has waited 1.5 s for 4 GPUs",
    "down since 10:15, and unused since then",
    "ganger history --since 2d",
    "'25:00' is not a valid time",
    "there is no job 999",
    "it is no longer known",
    "the agent reported nothing",
]


@pytest.mark.parametrize("text", [text for text, _ in PLANTED])
def test_a_planted_habit_is_found(text: str) -> None:
    about = dict(PLANTED)[text]
    assert [about in one.habit for one in habits(text)] == [True]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_sentences_pass(text: str) -> None:
    assert not list(habits(text))


SOURCE_OF_ALL_KINDS = '''
"""A module who is told things."""
LIMIT = 3
"""Said of a constant."""

@click.command(epilog="who waits")
@click.option("--x", help="whoever asks")
def command():
    """Say who runs."""
    raise BadInput(f"{text!r} is no time", where="who")
'''


def test_help_and_errors_are_read_and_docstrings_are_not() -> None:
    texts = {text for _, text in strings(ast.parse(SOURCE_OF_ALL_KINDS))}
    assert texts == {"who waits", "whoever asks", "Say who runs.", "{} is no time"}


def test_a_page_is_read_without_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidy.english.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# A\n\n`who`\n```\nwho waits\n```\n[x](who.md)\n\nIt says who waits.\n")
    found = list(in_page(page))
    assert [one.where for one in found] == ["page.md:9"]
    assert found[0].words.endswith("It says who waits.")


def test_help_and_errors_are_plain() -> None:
    assert [habit for path in sorted(SOURCE.rglob("*.py")) for habit in in_source(path)] == []


def test_pages_are_plain() -> None:
    assert [habit for path in PAGES for habit in in_page(path)] == []


@pytest.mark.parametrize("words", ALLOWED)
def test_no_exception_outlives_its_sentence(words: str) -> None:
    assert any(words in page.read_text(encoding="utf-8") for page in PAGES)


def test_the_architecture_reads_in_ten_minutes() -> None:
    page = ROOT / "ARCHITECTURE.md"
    assert len(page.read_text(encoding="utf-8").split()) <= 2400, "move details to docstrings"
