"""Whose tenant, how high, how much: what users of a shared daemon may state, on every route."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from attacks.http_rig import ANN, EVE, by_socket, open_folder, request, sent
from ganger.client.connection import Client, Refusal
from ganger.core.errors import BadInput
from ganger.service.http.endpoints import ENDPOINTS
from ganger.service.jobs.rights import Rights, TenantRights
from service.machines import Machine

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="other users need root")
HOLD = {"command": ["true"], "hold": True}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A shared daemon."""
    with open_folder() as base:
        made = Machine(base / "home", listen="127.0.0.1:0", shared=True, inner="fifo")
        made.up()
        made.client.call("PATCH", "/v1/quotas/lab", body={"members": {str(ANN): None}})
        yield made
        made.end()


def asked(
    machine: Machine, uid: int, method: str, path: str, body: Any = None, key: str = ""
) -> Any:
    """What a user is answered: the answer, or the status of the refusal."""
    headers = [f"Idempotency-Key: {key}"] if key else []
    data = b"" if body is None else json.dumps(body).encode()
    status, said = sent(by_socket(machine.root, uid), request(method, path, *headers, body=data))
    return json.loads(said) if status < 300 else status


def submitted(machine: Machine, uid: int, **fields: Any) -> int:
    """A job's number, or the status of the refusal."""
    answer = asked(machine, uid, "POST", "/v1/jobs", {**HOLD, **fields})
    return answer if isinstance(answer, int) else answer["job"]


def tenant_of(machine: Machine, job: int) -> str:
    """Whose book it stands in."""
    found: str = machine.client.call("GET", f"/v1/jobs/{job}")[0]["tenant"]
    return found


def test_a_user_submits_to_the_own_tenant_and_where_they_are_a_member(machine: Machine) -> None:
    assert tenant_of(machine, submitted(machine, EVE)) == str(EVE)
    assert tenant_of(machine, submitted(machine, EVE, tenant=str(EVE))) == str(EVE)
    assert tenant_of(machine, submitted(machine, ANN, tenant="lab")) == "lab"
    for tenant in ("lab", str(ANN), "root", "nobody-knows-it", " ", str(EVE) + " "):
        assert submitted(machine, EVE, tenant=tenant) == 403, tenant


FORMS: list[Callable[[dict[str, Any]], Any]] = [
    lambda job: job,
    lambda job: [job],
    lambda job: [dict(HOLD), job],
    lambda job: {**job, "array": "0-3"},
    lambda job: {**job, "array": "0-3%1"},
]


@pytest.mark.parametrize("form", FORMS, ids=["one", "list", "second", "array", "throttled"])
@pytest.mark.parametrize(
    "beyond",
    [{"tenant": "lab"}, {"priority": 1}, {"priority": 2**31 - 1}, {"weight": 1.5}, {"weight": 1e9}],
    ids=str,
)
def test_no_form_of_submission_gets_beyond(
    machine: Machine, form: Callable[[dict[str, Any]], Any], beyond: dict[str, Any]
) -> None:
    before = machine.client.call("GET", "/v1/jobs", query={"state": "all"})["total"]
    assert asked(machine, EVE, "POST", "/v1/jobs", form({**HOLD, **beyond})) == 403
    assert machine.client.call("GET", "/v1/jobs", query={"state": "all"})["total"] == before


def test_nobody_adds_a_trial_to_anothers_search(machine: Machine) -> None:
    search = submitted(machine, ANN, kind="tune", params={"lr": ["1", "2"]})
    for who in (EVE, 0):  # not even who may order everything: the trial would be theirs
        assert submitted(machine, who, parent=search) == 403
        assert asked(machine, who, "POST", "/v1/jobs", [HOLD, {**HOLD, "parent": search}]) == 403
        assert submitted(machine, who, parent=str(search), array="0-2") == 403
    child = submitted(machine, ANN, parent=search)
    found = machine.client.call("GET", f"/v1/jobs/{child}")[0]
    assert (found["parent"], found["user"]) == (search, str(ANN))


def test_a_resubmission_with_another_users_key_is_a_submission_of_ones_own(
    machine: Machine,
) -> None:
    body = {**HOLD, "tenant": "lab"}
    hers = asked(machine, ANN, "POST", "/v1/jobs", body, key="k")["job"]
    assert asked(machine, ANN, "POST", "/v1/jobs", body, key="k")["job"] == hers
    assert asked(machine, EVE, "POST", "/v1/jobs", body, key="k") == 403
    mine = asked(machine, EVE, "POST", "/v1/jobs", HOLD, key="k")["job"]
    assert mine != hers
    for key_of_hers in (f"{ANN}:k", f"x:{ANN}:k"):
        again = asked(machine, EVE, "POST", "/v1/jobs", HOLD, key_of_hers)
        assert again["job"] not in (hers, mine)


def test_priority_and_weight_are_not_raised_afterwards_either(machine: Machine) -> None:
    job = submitted(machine, EVE)
    other = submitted(machine, EVE, array="0-2")
    for names in (str(job), f"{job},{other}", f"{other}_1"):
        for body in (
            {"priority": 1},
            {"weight": 2.0},
            {"priority": -1, "weight": 2.0},
            {"priority": 1, "time_limit": "1h"},
        ):
            assert asked(machine, EVE, "PATCH", f"/v1/jobs/{names}", body) == 403, body
    assert machine.client.call("GET", f"/v1/jobs/{job}")[0]["priority"] == 0
    assert asked(machine, EVE, "PATCH", f"/v1/jobs/{job}", {"priority": -5})["jobs"] == [job]
    assert asked(machine, EVE, "PATCH", f"/v1/jobs/{job}", {"time_limit": "1h"})["jobs"] == [job]
    assert asked(machine, ANN, "PATCH", f"/v1/jobs/{job}", {"priority": -6}) == 403


def test_an_administrator_says_how_high(machine: Machine) -> None:
    set_, lab = machine.client.call, "/v1/quotas/lab"
    assert submitted(machine, ANN, tenant="lab", priority=5) == 403
    set_("PATCH", lab, body={"max_priority": 5, "max_weight": 3.0})
    job = submitted(machine, ANN, tenant="lab", priority=5, weight=3.0)
    assert submitted(machine, ANN, tenant="lab", priority=6) == 403
    assert submitted(machine, ANN, priority=5) == 403, "the own tenant is another one"
    set_("PATCH", lab, body={"members": {str(ANN): 9}})
    assert asked(machine, ANN, "PATCH", f"/v1/jobs/{job}", {"priority": 9})["jobs"] == [job]
    set_("PATCH", lab, body={"members": {str(ANN): 2}})
    assert submitted(machine, ANN, tenant="lab", priority=5) == 403
    machine.kill()
    machine.up()
    (found,) = [one for one in set_("GET", "/v1/quotas") if one["tenant"] == "lab"]
    assert (found["members"], found["max_priority"], found["max_weight"]) == ({str(ANN): 2}, 5, 3)
    set_("PATCH", lab, body={"without": [str(ANN)]})
    assert submitted(machine, ANN, tenant="lab") == 403
    set_("PATCH", lab, body={"members": {str(ANN): None}, "max_priority": None, "max_weight": None})
    assert submitted(machine, ANN, tenant="lab", priority=1) == 403
    root = machine.client.call("POST", "/v1/jobs", body={**HOLD, "tenant": "x", "priority": 99})
    assert tenant_of(machine, root["job"]) == "x"


def test_a_limit_is_not_passed_by_another_name(machine: Machine) -> None:
    """Below a limit of two GPUs there is no way to a third."""
    machine.client.call("PATCH", f"/v1/quotas/{EVE}", body={"limit": 2})
    runs = {"command": ["sleep", "60"], "gpus": 1}
    jobs = []
    for fields in ({}, {"name": "b"}, {"model": "m"}, {"kind": "serve"}, {"on_preempt": "never"}):
        answer = asked(machine, EVE, "POST", "/v1/jobs", {**runs, **fields})
        jobs.append(answer["job"])
    for tenant in ("lab", "", "root", f"{EVE}\u200b", f"{EVE}\n"):
        answer = asked(machine, EVE, "POST", "/v1/jobs", {**runs, "tenant": tenant})
        if isinstance(answer, dict):
            assert tenant_of(machine, answer["job"]) == str(EVE)
            jobs.append(answer["job"])
    (found,) = [
        one for one in machine.client.call("GET", "/v1/quotas") if one["tenant"] == str(EVE)
    ]
    assert (found["let_in"], found["waiting"]) == (2, len(jobs) - 2)
    asked(machine, EVE, "POST", f"/v1/jobs/{','.join(map(str, jobs))}/cancel")
    machine.client.call("DELETE", f"/v1/quotas/{EVE}")


def test_a_token_gives_no_more_rights_than_the_socket(machine: Machine) -> None:
    name = pwd.getpwnam("nobody").pw_name
    made = machine.client.call("POST", "/v1/tokens", body={"user": name, "role": "user"})
    listen = machine.client.call("GET", "/v1/status")["listen"]
    with Client(url=f"http://{listen}", token=made["token"]) as bearer:
        assert bearer.call("POST", "/v1/jobs", body=HOLD)["job"]
        for beyond in ({"tenant": "lab"}, {"tenant": "root"}, {"priority": 1}, {"weight": 2}):
            with pytest.raises(Refusal) as refused:
                bearer.call("POST", "/v1/jobs", body={**HOLD, **beyond})
            assert refused.value.status == 403
    machine.client.call("DELETE", f"/v1/tokens/{made['id']}")


OPEN = {
    ("GET", "/v1/status"), ("POST", "/v1/jobs"), ("GET", "/v1/jobs"), ("GET", "/v1/nodes"),
    ("GET", "/v1/map"), ("GET", "/v1/policy"), ("POST", "/v1/whatif"), ("GET", "/v1/fairshare"),
    ("GET", "/v1/quotas"), ("GET", "/v1/usage"), ("GET", "/v1/idle"), ("GET", "/v1/events"),
    ("GET", "/metrics"), ("GET", "/v1/services"), ("GET", "/v1/history"),
}  # fmt: skip
"""What every user may ask; all else is of an own job, or an administrator's."""
BODIES: dict[str, Any] = {
    "/v1/policy": {"recipe": "fifo"}, "/v1/quotas/{tenant}": {"limit": 1}, "/v1/idle": {"gpu": 0.1},
    "/v1/tokens": {"user": "root", "role": "admin"}, "/v1/jobs/{jobs}": {"priority": -1},
    "/v1/jobs/{jobs}/trials": {"configurations": [{"lr": "0.1"}]}, "/v1/shutdown": {},
    "/v1/jobs/{jobs}/proposals": {"configurations": [{"lr": "0.1"}]},
    "/v1/jobs/{jobs}/whatif": {"verb": "cancel"},
    "/v1/jobs/{jobs}/served": {"figures": {"queue": 1}},
}  # fmt: skip


@pytest.mark.parametrize(
    "endpoint",
    [one for one in ENDPOINTS if (one.method, one.path) not in OPEN],
    ids=lambda one: f"{one.method} {one.path}",
)
def test_every_other_endpoint_is_closed_to_who_is_not_its_owner(
    machine: Machine, endpoint: Any
) -> None:
    job = submitted(machine, ANN)
    node = machine.client.call("GET", "/v1/nodes")[0]["name"]
    path = endpoint.path.format(jobs=job, nodes=node, tenant="lab", token="x", user=EVE)
    body = BODIES.get(endpoint.path) if endpoint.method != "GET" else None
    assert asked(machine, EVE, endpoint.method, path, body) == 403
    assert machine.client.call("GET", f"/v1/jobs/{job}")[0]["reason"] == "JobHeldUser"


def test_only_the_owner_speaks_for_a_service(machine: Machine) -> None:
    """Who could tell of requests that wait would have another's service take GPUs."""
    service = submitted(machine, ANN, kind="serve")
    other = submitted(machine, ANN)
    for figures in (
        {},
        {"replicas": 1},
        {"port": 80},
        {"queue": -1},
        {"queue": 1e16},
        {"queue": "1"},
        {"queue": None},
    ):
        body = {"figures": figures}
        assert asked(machine, ANN, "POST", f"/v1/jobs/{service}/served", body) == 400, body
    told: dict[str, Any] = {"figures": {"queue": 1}}
    for who in (ANN, 0):
        for names in (str(other), f"{service},{other}"):
            assert asked(machine, who, "POST", f"/v1/jobs/{names}/served", told) == 400
            assert asked(machine, who, "GET", f"/v1/jobs/{names}/replicas") == 400
        assert asked(machine, who, "POST", f"/v1/jobs/{service}/served", told) == 400, "it is held"
        (found,) = asked(machine, who, "GET", f"/v1/jobs/{service}/replicas")
        assert (found["job"], found["port"], found["leaving"]) == (service, 0, False)
    for method, what, sending in (
        ("POST", "/served", told),
        ("GET", "/replicas", None),
        ("PATCH", "", {"max_gpus": 4}),
    ):
        assert asked(machine, EVE, method, f"/v1/jobs/{service}{what}", sending) == 403
    assert asked(machine, ANN, "PATCH", f"/v1/jobs/{service}", {"max_gpus": 4}) == 400, "it is held"
    asked(machine, ANN, "POST", f"/v1/jobs/{service},{other}/cancel")


def test_one_foreign_job_among_own_ones_refuses_all(machine: Machine) -> None:
    hers, mine = submitted(machine, ANN), submitted(machine, EVE)
    for names in (f"{mine},{hers}", f"{hers},{mine}", f"{mine},0{hers}", f"{mine}, {hers}"):
        path = f"/v1/jobs/{names.replace(' ', '%20')}"
        assert asked(machine, EVE, "POST", f"{path}/cancel") == 403, names
        assert asked(machine, EVE, "GET", path) == 403, names
    assert machine.client.call("GET", f"/v1/jobs/{mine}")[0]["state"] == "PENDING"


def test_what_the_daemon_may_read_is_not_read_for_users(machine: Machine) -> None:
    for body in (
        {"add": "/etc/passwd"},
        {"add": "etc/passwd"},
        {"add": "vmlinuz"},
        {"add": "."},
        {"recipes": ["/tmp/x.py:P"]},
        {"recipes": ["x.py:P"]},
    ):
        assert asked(machine, EVE, "POST", "/v1/whatif", body) == 403, body
    assert asked(machine, EVE, "POST", "/v1/whatif", {"add": "99999x1xV100"}) == 400
    assert asked(machine, EVE, "POST", "/v1/whatif", {"recipes": ["fifo"] * 101}) == 400


def test_rights_of_nobody_in_particular() -> None:
    class Asker:
        user = "ann"

    rights = Rights({"lab": TenantRights({"ann": None, "bob": 7}, max_priority=3)})
    rights.refuse_beyond(Asker, "lab", 3, 1.0)  # type: ignore[arg-type]
    rights.refuse_beyond(Asker, "ann", 0, 1.0)  # type: ignore[arg-type]
    for tenant, priority, weight in (
        ("lab", 4, 1.0),
        ("ann", 1, 1.0),
        ("ann", 0, 1.01),
        ("bob", 0, 1.0),
        ("", 0, 1.0),
    ):
        with pytest.raises(BadInput):
            rights.refuse_beyond(Asker, tenant, priority, weight)  # type: ignore[arg-type]
    assert rights.changed("lab", TenantRights()).tenants == {}
