"""The API under schemathesis: whatever is sent, no server error, and answers as OpenAPI says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ganger.service.http.endpoints import ENDPOINTS
from service.machines import Machine
from service.test_extremes import odd_values
from soaking import many

pytestmark = pytest.mark.long

schemathesis = pytest.importorskip("schemathesis")

APART = {("POST", "/v1/shutdown"), ("GET", "/v1/events"), ("POST", "/v1/nodes/{nodes}/resume")}
"""One ends the daemon, one does not end, and with one jobs would start."""
OPERATIONS = [(one.method, one.path) for one in ENDPOINTS if (one.method, one.path) not in APART]
EXAMPLES = 20


def is_long(seconds: Any) -> bool:
    """Whether the daemon takes this as a time to wait, and it is more than 0.1 s."""
    try:
        return 0.1 < float(seconds) <= 60
    except (TypeError, ValueError, OverflowError):
        return False


class Api:
    """A daemon on TCP on which nothing starts, with some jobs, and its description."""

    def __init__(self, root: Path) -> None:
        self.machine = Machine(root / "home", listen="127.0.0.1:0")
        client = self.machine.up()
        self.node = client.call("GET", "/v1/nodes")[0]["name"]
        client.call("POST", f"/v1/nodes/{self.node}/drain")
        for body in ({"array": "0-3"}, {"name": "\u00e9\u4e16", "hold": True}, {"after": [1]}):
            client.call("POST", "/v1/jobs", body={"command": ["true"], **body})
        client.call("PATCH", "/v1/quotas/0", body={"limit": 2})
        self.url = "http://" + client.call("GET", "/v1/status")["listen"]
        token = (self.machine.root / "token").read_text().strip()
        self.headers = {"Authorization": f"Bearer {token}"}
        self.schema = schemathesis.openapi.from_dict(client.call("GET", "/openapi.json"))
        self.schema.config.update(base_url=self.url)

    def bring_near(self, case: Any, fields: int) -> None:
        """Ask of what there is, and of a job's many fields say only a few: what is wrong all over
        never gets beyond the first check."""
        there = {"jobs": "1", "nodes": self.node, "tenant": "0", "user": "ann"}
        for name in set(case.path_parameters or ()) & set(there):
            case.path_parameters[name] = there[name]
        if case.path == "/v1/jobs" and isinstance(case.body, dict):
            kept = dict(list(case.body.items())[:fields])
            case.body = {**kept, "command": ["true"], "format": "ganger.job/1"}

    def ask(self, case: Any) -> None:
        """Send it and check the answer. A request that waits for a job waits 0.1 s: none starts."""
        if case.path.endswith("/wait"):
            query = {"timeout": 30, **(case.query or {})}
            if is_long(query["timeout"]):
                query["timeout"] = 0.1
            case.query = query
        case.call_and_validate(headers=self.headers, checks=checks(), timeout=60)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    made = Api(tmp_path_factory.mktemp("fuzz"))
    yield made
    made.machine.end()


def checks() -> list[Any]:
    """What must hold of every answer."""
    found = schemathesis.checks
    return [
        found.not_a_server_error,
        found.status_code_conformance,
        found.content_type_conformance,
        found.response_headers_conformance,
        found.response_schema_conformance,
    ]


every_operation = pytest.mark.parametrize(
    ("method", "path"), OPERATIONS, ids=[" ".join(one) for one in OPERATIONS]
)


@every_operation
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_whatever_is_sent(api: Api, method: str, path: str, mode: str) -> None:
    operation = api.schema[path][method]
    wanted = schemathesis.GenerationMode[mode]

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=wanted), near=st.integers(0, 4))
    def check(case: Any, near: int) -> None:
        if near:
            api.bring_near(case, near)
        api.ask(case)

    check()
    assert api.machine.process is not None
    assert api.machine.process.poll() is None, api.machine.said()


def can_be_sent(value: Any) -> bool:
    """Whether there is JSON for it, as UTF-8."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


@every_operation
def test_extreme_values_of_any_field_are_taken_or_refused(api: Api, method: str, path: str) -> None:
    """What the schema lets through, with one field of the body, or one parameter, at an extreme:
    numbers around 2^31, 2^53, 2^63 and 2^64, a megabyte, every category of characters."""
    operation = api.schema[path][method]

    @settings(
        max_examples=many(EXAMPLES),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE),
        near=st.integers(1, 4),
        where=st.integers(0, 99),
        value=odd_values.filter(can_be_sent),
    )
    def check(case: Any, near: int, where: int, value: Any) -> None:
        api.bring_near(case, near)
        body = case.body if isinstance(case.body, dict) else {}
        query = case.query or {}
        places = [(holder, name) for holder in (body, query) for name in sorted(holder)]
        if places:
            holder, name = places[where % len(places)]
            short = str(value)[:2000].encode(errors="replace").decode()
            holder[name] = value if holder is body else short
        api.ask(case)

    check()
    assert api.machine.process is not None
    assert api.machine.process.poll() is None, api.machine.said()
