"""How many values a document may hold, each as often as its aliases repeat it."""

from __future__ import annotations

import pytest

from ganger.core import documents
from ganger.core.documents import parsed

COUNTED = {
    "7": 1,
    "[1, 2, 3]": 4,
    "{a: 1, b: 2}": 5,
    "- 1\n- &x [1, 2]\n- *x\n- *x\n": 1 + 1 + 3 + 3 + 3,
    "- 1\n- &x [1, &y [2, 3]]\n- *y\n- [*x, *y]\n": 1 + 1 + 5 + 3 + (1 + 5 + 3),
}
"""A document, and its values when all is written out."""


@pytest.mark.parametrize("text", COUNTED, ids=list(COUNTED.values()))
def test_a_value_counts_as_often_as_it_is_repeated(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "NODES_MAX", COUNTED[text])
    parsed(text, ".yaml")
    monkeypatch.setattr(documents, "NODES_MAX", COUNTED[text] - 1)
    with pytest.raises(ValueError, match="more than"):
        parsed(text, ".yaml")


def test_an_anchor_inside_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="an alias of itself"):
        parsed("&x [1, *x]", ".yaml")


def test_a_dotted_key_has_at_most_200_parts() -> None:
    assert parsed(".".join(["a"] * 200) + " = 1", ".toml")["a"]
    with pytest.raises(ValueError, match="more than 200 parts"):
        parsed(".".join(["a"] * 201) + " = 1", ".toml")
