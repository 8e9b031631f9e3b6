"""Attacks by names of files: one in every field of every form of the pages and in every word that
the API takes, and nobody opens that file for a user."""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints
from urllib.parse import quote, urlencode

import msgspec
import pytest

from attacks.http_rig import EVE, by_socket, open_folder, request, sent
from ganger.service.http.endpoints import ENDPOINTS, Endpoint
from service.machines import Machine
from web.rig import Pages, Standin, served

_OPENED = 0x20 | 0x1  # IN_OPEN, IN_ACCESS of inotify(7)
ENDING = ("/sessions", "/end", "/orders", "/again")
"""Forms that start nothing, or end what this test needs; their fields are whole numbers and words
of a list, which `test_http_words.py` tries."""


HELD = {"command": ["true"], "hold": True}
ENDLESS = ("/v1/events", "/v1/jobs/{jobs}/logs")
"""Answers that go on."""


class Watch:
    """Whether any process has opened a file, by inotify."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0
        assert libc.inotify_add_watch(self._descriptor, os.fsencode(path), _OPENED) >= 0

    def opened(self) -> bool:
        """Since it was asked last."""
        try:
            return bool(os.read(self._descriptor, 4096))
        except BlockingIOError:
            return False


class Forms(HTMLParser):
    """The forms of a page: (method, action, fields with what they hold), and its links."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__()
        self.path, self.links = path, set[str]()
        self.found: list[tuple[str, str, dict[str, str]]] = []
        self._select, self._area = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.add(has.get("href", "").partition("#")[0].partition("?")[0])
        elif tag == "form":
            action = has.get("action") or self.path
            self.found.append((has.get("method", "get").upper(), action, {}))
        elif self.found and tag in ("input", "select", "textarea", "button") and has.get("name"):
            fields = self.found[-1][2]
            if has.get("type") not in ("checkbox", "radio") or "checked" in has:
                fields[has["name"]] = has.get("value", "")
            self._select = has["name"] if tag == "select" else self._select
            self._area = has["name"] if tag == "textarea" else ""
        elif tag == "option" and self.found and self._select:
            fields = self.found[-1][2]
            if "selected" in has or not fields.get(self._select):
                fields[self._select] = has.get("value", "")

    def handle_data(self, data: str) -> None:
        if self._area and self.found:
            self.found[-1][2][self._area] += data


def naming(path: Path) -> tuple[str, ...]:
    """Words that name it."""
    return f"@{path}", f"{path}", f"{path}:Mine", f"fgd(workload=@{path})"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    daemon = Standin(tmp_path_factory.mktemp("web") / "home", jobs=9)
    with served(daemon.home) as made:
        yield made
    daemon.end()


def kind(path: str) -> str:
    """One page of each kind is enough: the queue's, a job's, a recipe's; but every lesson."""
    return path if path.startswith("/lessons") else re.sub(r"(?<=/)[^/]+$", "*", path[1:])


def forms(pages: Pages, cookie: dict[str, str]) -> list[tuple[str, str, dict[str, str]]]:
    """Those of all pages that links lead to from the first one."""
    found, todo, seen = dict[str, tuple[str, str, dict[str, str]]](), ["/"], {"/"}
    while todo:
        path = todo.pop(0)
        answer = pages.ask("GET", path, cookie)
        if answer.status != 200 or "html" not in answer.headers["content-type"]:
            continue
        page = Forms(path, answer.text)
        for method, action, fields in page.found:
            if not action.endswith(ENDING):
                found[f"{method} {action}"] = method, action, fields
        for link in sorted(page.links):
            if link.startswith("/") and kind(link) not in seen:
                seen.add(kind(link))
                todo.append(link)
    return list(found.values())


def test_a_watch_sees_that_a_file_is_opened(tmp_path: Path) -> None:
    (secret := tmp_path / "secret").write_text("x")
    watch = Watch(secret)
    assert not watch.opened()
    secret.read_text()
    assert watch.opened()
    assert not watch.opened()


def test_no_field_of_a_page_opens_a_file(pages: Pages, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("id,arrival,gpus,duration\n1,0,1,60\n")
    watch = Watch(secret)
    cookie = pages.cookie()
    tried, begun = 0, list[str]()
    found = forms(pages, cookie)
    assert {"/whatif", "/lab"} <= {action for _, action, _ in found}
    assert sum(action.startswith("/lessons/") for _, action, _ in found) >= 8
    for method, action, fields in found:
        csrf = pages.csrf(cookie, action) if method == "POST" else ""
        for name in sorted(set(fields) - {"csrf"}):
            for word in naming(secret):
                tried += 1
                form = {**fields, name: word}
                answer = pages.ask("GET", f"{action}?{urlencode(form)}", cookie)
                assert answer.status < 500, (action, name, word)
                if method == "POST":
                    answer = pages.ask("POST", action, cookie, {**form, "csrf": csrf})
                    assert answer.status < 500, (action, name, word)
                    if answer.status == 303:
                        for path in begun:
                            pages.ask("POST", f"{path}/end", cookie, {"csrf": csrf})
                        begun.append(answer.headers["location"])
                assert not watch.opened(), (action, name, word)
    assert tried > 100
    for path in begun:  # the last one that was taken runs to its end
        until = time.monotonic() + 60
        while f'action="{path}/end"' in pages.ask("GET", path, cookie).text:
            assert time.monotonic() < until
            time.sleep(0.1)
    assert not watch.opened()


def words_in(kind: Any, path: Path) -> Iterator[Any]:
    """Values of a type of the API, each with one word that names the file."""
    origin, of = get_origin(kind) or kind, get_args(kind)
    if kind is str:
        yield from naming(path)
    elif origin in (list, tuple):
        yield from ([one] for one in words_in(of[0], path))
    elif origin is dict:
        yield from ({"x": one} for one in words_in(of[1], path))
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for name, field in get_type_hints(kind).items():
            yield from ({name: one} for one in words_in(field, path))
    else:  # a union, or nothing that holds words
        for each in of:
            yield from words_in(each, path)


def asks_of(one: Endpoint, path: Path) -> Iterator[tuple[str, Any]]:
    """Requests to an endpoint, each with one word that names the file: where, and the body."""
    where = one.path.format(jobs=1, nodes="x", tenant="x", token="x", user="x")
    whole = HELD if where == "/v1/jobs" and one.method == "POST" else {}
    if one.body is not None:
        for body in words_in(one.body, path):
            yield where, whole | body if isinstance(body, dict) else [whole | body[0]]
    for name in one.query:
        for word in naming(path):
            yield f"{where}?{name}={quote(word)}", whole or None


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A shared daemon, which is root's."""
    with open_folder() as base:
        made = Machine(base / "home", shared=True, inner="fifo")
        made.up()
        yield made
        made.end()


@pytest.mark.skipif(os.getuid() != 0, reason="another user needs root")
def test_no_word_of_a_user_has_the_daemon_open_a_file(machine: Machine) -> None:
    """The daemon might read it; the user may not."""
    secret = machine.root.parent / "secret.csv"
    secret.write_text("id,arrival,gpus,duration\n1,0,1,60\n")
    secret.chmod(0o600)
    watch, tried, taken = Watch(secret), 0, 0

    def asked(method: str, path: str, body: Any) -> int:
        data = b"" if body is None else msgspec.json.encode(body)
        return sent(by_socket(machine.root, EVE), request(method, path, body=data))[0]

    assert asked("POST", "/v1/jobs", HELD) == 201
    for one in ENDPOINTS:
        for path, body in asks_of(one, secret) if one.path not in ENDLESS else ():
            status = asked(one.method, path, body)
            assert status < 500, (path, body)
            assert not watch.opened(), (path, body)
            tried, taken = tried + 1, taken + (status < 300)
    assert tried > 200
    assert taken > 10
