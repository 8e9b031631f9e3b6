"""The page of the Python API: what it says is what the code says."""

from __future__ import annotations

import inspect
from pathlib import Path

import ganger
from ganger.lab.docs.api_page import GIVEN_BACK, page

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_page_is_up_to_date() -> None:
    made = "make it again: python -m ganger.lab.docs.api_page > docs/api.md"
    assert PAGE.read_text(encoding="utf-8") == page(), made


def test_everything_public_is_on_it_with_words() -> None:
    sections = dict(part.partition("\n")[::2] for part in page().split("\n## `")[1:])
    for name in ganger.__all__:
        assert name == "__version__" or sections[f"ganger.{name}`"].strip(), name
    for name in (name for names in GIVEN_BACK.values() for name in names):
        assert sections[f"{name}`"].strip(), name
    assert ".table() -> dict[str, list[Any]]" in sections["Run`"]
    row = "| `ran` | `NDArray[np.float64]`. Executed time over all attempts. |"
    assert row in sections["JobTable`"]


def test_a_name_is_no_package_whatever_was_imported_before() -> None:
    page()
    assert "fifo" in ganger.list_recipes()
    assert not [name for name in ganger.__all__ if inspect.ismodule(getattr(ganger, name))]
