"""CONTRIBUTING.md is true: what it names is there, and its examples fit the files they change."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganger.cli.lab.recipes import RENAMED

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "docs/decisions.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"[\w./-]+/[\w./-]*|[\w-]+\.(?:py|md|j2|js|toml|txt)|Makefile")


def there(name: str) -> bool:
    """Whether a file or a folder of that name is in the tree, or in the package."""
    return any((base / name).exists() for base in (ROOT, ROOT / "src" / "ganger"))


def named(page: str) -> list[str]:
    """The paths that a page names in `code`, and those that it links to."""
    text = BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
    words = [word for span in re.findall(r"`([^`\n]+)`", text) for word in span.split()]
    folder = Path(page).parent
    links = [str(folder / link) for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    return links + [word for word in words if FILE.fullmatch(word)]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_it_names_exists(page: str) -> None:
    names = [name for name in named(page) if name not in MADE]
    assert len(names) > 5
    assert [name for name in names if not there(name)] == []


MADE = ("tests/ROOM", ".venv/bin/python", "/dev/null")
"""What looks like a path and is not one of the tree."""


def changes() -> Iterator[tuple[str, list[list[str]]]]:
    """The examples: a file, and the runs of lines of it that its changes stand between."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for kind, body in BLOCK.findall(text):
        if kind != "diff":
            continue
        for part in re.split(r"^--- ", body, flags=re.MULTILINE)[1:]:
            head, *lines = part.splitlines()
            if head == "/dev/null":
                continue
            hunks: list[list[str]] = [[]]
            for line in lines:
                if line.startswith("@@"):
                    hunks.append([])
                elif not line.startswith("+"):
                    hunks[-1].append(line[1:])
            yield head, hunks


def test_examples_fit_the_files_that_they_change() -> None:
    seen = 0
    for file, hunks in changes():
        lines = (ROOT / file).read_text(encoding="utf-8")
        for hunk in hunks:
            assert "\n".join(hunk) in lines, f"{file}: {hunk}"
            seen += 1
    assert seen >= 9


def test_what_examples_make_is_not_there_yet() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    made = re.findall(r"^\+\+\+ (\S+)$", text, re.MULTILINE)
    assert len(made) == 2
    assert not [name for name in made if (ROOT / name).exists()]


def test_it_asks_ten_questions_twice_and_answers_each_with_a_path() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    asked = re.findall(r"^\d+\. .*$", text.partition("\n## Ten questions\n")[2], re.MULTILINE)
    assert len(asked) == 20
    assert all(re.search(r"\? .*`[\w/]+\.py`", each) for each in asked)


def test_make_help_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())  # type: ignore[index]
    said = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), "help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert {line.split()[0] for line in said.splitlines() if line.strip()} == targets
    assert all(len(line.split()) > 1 for line in said.splitlines())


def test_the_changelog_has_every_name_of_before_that_still_answers() -> None:
    rows = re.findall(
        r"^\| `(\S.*)` \| `(\S.*)` \|$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    words = {old.split()[-1]: now.split()[-1] for old, now in rows if "--mechanism" in now}
    assert words == RENAMED
    folder = ROOT / "src" / "ganger" / "mechanisms"
    modules = {f"ganger.mechanisms.{path.stem}" for path in folder.glob("[!_]*.py")}
    assert {old for old, _ in rows if old.startswith("ganger.")} == modules
