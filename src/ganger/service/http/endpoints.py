"""The table from which routes and OpenAPI are made: one row per endpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from ganger.client.answering.families import (
    ProposalsAnswer,
    ReplicaAnswer,
    ReportAnswer,
    ServiceAnswer,
)
from ganger.client.answering.gpu_map import MapAnswer
from ganger.client.answers import (
    Changed,
    EffectAnswer,
    Explanation,
    FutureAnswer,
    IdleAnswer,
    JobDetail,
    JobPage,
    NodeAnswer,
    NotifyAnswer,
    OutputPiece,
    PastAnswer,
    PolicyAnswer,
    Quota,
    RolesAnswer,
    Share,
    Status,
    Submitted,
    TokenAnswer,
    Usage,
)
from ganger.service.http import cluster_api as cluster
from ganger.service.http import cluster_bodies as bodies
from ganger.service.http import job_api as jobs
from ganger.service.http import service_api as services
from ganger.service.http.request_helpers import Answer


@dataclass(frozen=True)
class Endpoint:
    """One row of the table. `body` and `answer` are types that OpenAPI is made of."""

    method: str
    path: str
    handler: Callable[[Request], Answer]
    answer: Any
    body: Any = None
    query: tuple[str, ...] = ()
    code: int = 200


_JOBS = "/v1/jobs/{jobs}"
ENDPOINTS: Final = (
    Endpoint("GET", "/v1/status", cluster.status, Status),
    Endpoint(
        "POST", "/v1/jobs", jobs.submit, Submitted, jobs.Submission, query=("expect",), code=201
    ),
    Endpoint(
        "GET",
        "/v1/jobs",
        jobs.list_jobs,
        JobPage,
        query=(
            "state",
            "user",
            "tenant",
            "name",
            "kind",
            "jobs",
            "alone",
            "best",
            "since",
            "offset",
            "limit",
            "expect",
            "find",
            "sort",
        ),
    ),
    Endpoint("GET", _JOBS, jobs.show_job, list[JobDetail]),
    Endpoint("PATCH", _JOBS, jobs.update_job, Changed, jobs.Update),
    *(
        Endpoint("POST", f"{_JOBS}/{verb}", jobs.order(verb), Changed)
        for verb in ("cancel", "hold", "release", "requeue", "suspend", "resume")
    ),
    Endpoint("POST", f"{_JOBS}/again", jobs.submit_again, Submitted, code=201),
    Endpoint("POST", f"{_JOBS}/whatif", jobs.try_order, EffectAnswer, jobs.Trial),
    Endpoint("POST", f"{_JOBS}/trials", jobs.add_trials, Changed, jobs.Trials),
    Endpoint("GET", f"{_JOBS}/proposals", jobs.list_proposals, ProposalsAnswer),
    Endpoint("POST", f"{_JOBS}/proposals", jobs.propose, ProposalsAnswer, jobs.Trials),
    Endpoint("GET", f"{_JOBS}/replicas", services.list_replicas, list[ReplicaAnswer]),
    Endpoint("POST", f"{_JOBS}/served", services.tell_served, Changed, services.ServedBody),
    Endpoint("GET", f"{_JOBS}/wait", jobs.wait_job, JobPage, query=("timeout",)),
    Endpoint("GET", f"{_JOBS}/codes", jobs.exit_codes, dict[str, int | None]),
    Endpoint(
        "GET",
        f"{_JOBS}/logs",
        jobs.logs,
        str,
        query=("stream", "attempt", "node", "lines", "follow"),
    ),
    Endpoint(
        "GET", f"{_JOBS}/reports", jobs.list_reports, list[ReportAnswer], query=("after", "limit")
    ),
    Endpoint(
        "GET",
        f"{_JOBS}/output",
        jobs.output,
        OutputPiece,
        query=("stream", "attempt", "node", "lines", "at"),
    ),
    Endpoint("GET", f"{_JOBS}/explain", jobs.explain_job, Explanation),
    Endpoint("GET", "/v1/nodes", cluster.list_nodes, list[NodeAnswer]),
    Endpoint("GET", "/v1/services", cluster.list_services, list[ServiceAnswer]),
    Endpoint("GET", "/v1/map", cluster.show_map, MapAnswer),
    *(
        Endpoint("POST", f"/v1/nodes/{{nodes}}/{verb}", cluster.node_order(verb), list[NodeAnswer])
        for verb in ("drain", "resume")
    ),
    Endpoint("GET", "/v1/policy", cluster.show_policy, PolicyAnswer),
    Endpoint("PUT", "/v1/policy", cluster.set_policy, PolicyAnswer, bodies.PolicyChange),
    Endpoint("POST", "/v1/whatif", cluster.whatif, list[FutureAnswer], bodies.WhatIf),
    Endpoint("GET", "/v1/history", cluster.history, PastAnswer, query=("days", "limit")),
    Endpoint("GET", "/v1/fairshare", cluster.fairshare, list[Share]),
    Endpoint("GET", "/v1/quotas", cluster.list_quotas, list[Quota]),
    Endpoint("PATCH", "/v1/quotas/{tenant}", cluster.set_quota, list[Quota], bodies.QuotaChange),
    Endpoint("DELETE", "/v1/quotas/{tenant}", cluster.forget_quota, list[Quota]),
    Endpoint("GET", "/v1/roles", cluster.show_roles, RolesAnswer),
    Endpoint("POST", "/v1/tokens", cluster.make_token, TokenAnswer, bodies.NewToken, code=201),
    Endpoint("DELETE", "/v1/tokens/{token}", cluster.revoke_token, RolesAnswer),
    Endpoint("PUT", "/v1/admins/{user}", cluster.admin_order(True), RolesAnswer),
    Endpoint("DELETE", "/v1/admins/{user}", cluster.admin_order(False), RolesAnswer),
    Endpoint(
        "GET", "/v1/usage", cluster.show_usage, list[Usage], query=("prices", "since", "until")
    ),
    Endpoint("GET", "/v1/idle", cluster.show_idle, IdleAnswer),
    Endpoint("PATCH", "/v1/idle", cluster.set_idle, IdleAnswer, bodies.RuleChange),
    Endpoint("GET", "/v1/notify", cluster.show_notify, NotifyAnswer),
    Endpoint("POST", "/v1/notify/test", cluster.test_notify, NotifyAnswer),
    Endpoint("POST", "/v1/shutdown", cluster.shutdown, dict[str, bool], bodies.Down),
    Endpoint("GET", "/v1/events", cluster.events, str, query=("since", "steps")),
    Endpoint("GET", "/metrics", cluster.metrics, str),
)
