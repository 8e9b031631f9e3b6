"""docs/security.md names a test for each of its claims, and no test of attacks is left out."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "security.md").read_text()
NAMED = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE))


def there() -> set[tuple[str, str]]:
    """Every test of this folder, but for those of the page itself."""
    return {
        (path.name, name)
        for path in HERE.glob("test_*.py")
        if path.name != Path(__file__).name
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }


def test_every_test_that_the_page_names_is_there() -> None:
    assert NAMED - there() == set()
    assert len(NAMED) > 40


def test_every_attack_on_the_http_side_stands_on_the_page() -> None:
    missing = {one for one in there() - NAMED if one[0].startswith(("test_http", "test_web"))}
    assert missing - HELPERS == set()


HELPERS = {
    ("test_http_load.py", "test_an_answer_may_take_longer_than_a_head"),
    ("test_http_rights.py", "test_rights_of_nobody_in_particular"),
    ("test_http_load.py", "test_a_user_has_so_many_connections_and_one_more_when_one_is_closed"),
    ("test_http_files.py", "test_a_folder_that_others_wrote_in_is_closed_to_them"),
    ("test_http_words.py", "test_shown_text_is_one_printable_line_and_json_keeps_its_meaning"),
}
"""Parts of claims that others of the page make."""
