"""The endpoints that are about the cluster: nodes, policy, tenants, the daemon itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ganger.client.answering.families import ServiceAnswer
from ganger.client.answering.gpu_map import MapAnswer
from ganger.client.answers import (
    FutureAnswer,
    IdleAnswer,
    NodeAnswer,
    NotifyAnswer,
    PastAnswer,
    PolicyAnswer,
    Quota,
    RolesAnswer,
    Share,
    Status,
    TokenAnswer,
    Usage,
)
from ganger.client.connection import BEAT_SECONDS
from ganger.core.errors import BadInput
from ganger.core.units import SECOND, WHOLE
from ganger.service.commands import Keep, NodeOrder, Order, SetPolicy, SetTenant
from ganger.service.durable.journal import Journal, named
from ganger.service.durable.sandbox import futures, past_of, try_policy
from ganger.service.http.app_context import AppContext
from ganger.service.http.cluster_bodies import (
    DAYS_MAX,
    Down,
    NewToken,
    PolicyChange,
    QuotaChange,
    RuleChange,
    WhatIf,
)
from ganger.service.http.request_helpers import (
    Answer,
    asked,
    body_of,
    locked,
    number,
    who_of,
    world_of,
)
from ganger.service.idle import RULE as IDLE_SETTING
from ganger.service.jobs.rights import SETTING as RIGHTS_SETTING
from ganger.service.jobs.rights import (
    Rights,
    TenantRights,
)
from ganger.service.jobs.roles import SETTING as ROLES_SETTING
from ganger.service.jobs.roles import Roles
from ganger.service.jobs.submission import checked_text
from ganger.service.notices.notify import Message
from ganger.service.reports import families, rows
from ganger.service.reports.gpu_map import gpu_map
from ganger.service.reports.usage import parse_prices, prices_of, usage, usage_between
from ganger.workloads.clusters import is_short, load_cluster

NODES_MAX: Final = 10_000
RECIPES_MAX: Final = 100
HISTORY_JOBS_MAX: Final = 20_000
STEPS_APART_SECONDS: Final = 0.1


async def list_nodes(request: Request) -> list[NodeAnswer]:
    """All nodes."""
    return locked(world_of(request), rows.node_answers)


async def list_services(request: Request) -> list[ServiceAnswer]:
    """The services that are not over."""
    return locked(world_of(request), families.services)


async def show_map(request: Request) -> MapAnswer:
    """Which job holds which GPU of which node."""
    return locked(world_of(request), gpu_map)


def node_order(verb: str) -> Callable[[Request], Answer]:
    """An endpoint that drains or resumes nodes."""

    async def endpoint(request: Request) -> list[NodeAnswer]:
        world = world_of(request)
        world.refuse_users(who_of(request))
        names = world.daemon.kernel.nodes.names
        wanted = request.path_params["nodes"].split(",")
        for name in wanted:
            if name not in names:
                raise rows.NoSuch(f"no node {name!r}", mend="`ganger nodes` lists them")
        await asked(world, NodeOrder([names.index(name) for name in wanted], verb))
        return [node for node in locked(world, rows.node_answers) if node.name in wanted]

    endpoint.__doc__ = f"Apply `{verb}` to the nodes in the path."
    return endpoint


async def whatif(request: Request) -> list[FutureAnswer]:
    """What other recipes, or more nodes, would make of the present queue or of the past."""
    found = await body_of(request, WhatIf)
    if (found.add and not is_short(found.add)) or any(".py" in recipe for recipe in found.recipes):
        world_of(request).refuse_users(who_of(request))  # files are read, and run, as the daemon
    if len(found.recipes) > RECIPES_MAX:
        raise BadInput(f"more than {RECIPES_MAX} recipes", where="recipes", mend="ask in parts")
    add = load_cluster(found.add).nodes if found.add else ()
    if sum(node.count for node in add) > NODES_MAX:
        raise BadInput(f"more than {NODES_MAX:,} nodes", where="add")
    expanded = [msgspec.structs.replace(node, count=1) for node in add for _ in range(node.count)]
    world = world_of(request)
    return await world.looks.look(
        who_of(request), futures, world.daemon, found.recipes, expanded, found.history_days
    )


async def history(request: Request) -> PastAnswer:
    """The jobs that finished in the last `days` as a trace, or without it those that run and wait,
    several times with other run times; at most `limit` jobs. Names are left out."""
    days = number(request, "days", 0, DAYS_MAX)
    limit = int(number(request, "limit", HISTORY_JOBS_MAX, HISTORY_JOBS_MAX)) or HISTORY_JOBS_MAX
    world = world_of(request)
    return await world.looks.look(who_of(request), past_of, world.daemon, days, limit)


async def show_policy(request: Request) -> PolicyAnswer:
    """The recipe in force."""
    header = world_of(request).daemon.header
    return PolicyAnswer(
        recipe=header.policy, knows=header.knows, inner=header.inner, serving=header.serving
    )


async def set_policy(request: Request) -> PolicyAnswer:
    """Decide by another recipe from now on, or see what it would do."""
    found = await body_of(request, PolicyChange)
    world = world_of(request)
    world.refuse_users(who_of(request))
    if found.recipe is found.inner is found.serving is None and not found.knows:
        raise BadInput("nothing to change", where="body", mend="give recipe, inner or serving")
    before = world.daemon.header
    header = msgspec.structs.replace(
        before,
        policy=before.policy if found.recipe is None else found.recipe,
        knows=found.knows or before.knows,
        inner=named(found.inner, before.inner),
        serving=named(found.serving, before.serving),
    )
    trial = await asyncio.to_thread(try_policy, world.daemon, header)
    if found.dry_run or trial.error:
        if trial.error and not found.dry_run:
            raise BadInput(
                f"the recipe fails on the present state: {trial.error}", where=header.policy
            )
        return trial
    planes = {"inner": header.inner, "serving": header.serving}
    await asked(world, SetPolicy(header.policy, header.knows, **planes))
    return msgspec.structs.replace(trial, dry_run=False)


async def fairshare(request: Request) -> list[Share]:
    """What each tenant has used and holds."""
    return locked(world_of(request), rows.shares)


async def list_quotas(request: Request) -> list[Quota]:
    """What tenants may have, of those for whom something was set."""
    return _quotas(world_of(request))


def _quotas(world: AppContext) -> list[Quota]:
    return locked(world, rows.quotas, world.rights)


async def set_quota(request: Request) -> list[Quota]:
    """Set what a tenant may have; who runs goes on."""
    found = await body_of(request, QuotaChange)
    world = world_of(request)
    world.refuse_users(who_of(request))
    tenant = checked_text(request.path_params["tenant"], "tenant")
    limit, quota, weight = found.limit, found.quota, found.weight
    for name, value, least in (
        ("limit", limit, 0),
        ("quota", quota, 0),
        ("weight", weight, 1e-9),
        ("budget", found.budget, 0),
        ("max_weight", found.max_weight, 1e-9),
    ):
        if isinstance(value, int | float) and not least <= value <= 1e9:
            raise BadInput(f"{value} is not in {least} .. 1e9", where=name)
    if found == QuotaChange():
        mend = "give limit, quota, weight or budget"
        raise BadInput("nothing to change", where="body", mend=mend)
    async with world.changing:
        rights = world.rights.changed(tenant, found.rights_after(world.rights.of(tenant)))
        await _keep_rights(world, rights)
    budget, beyond = found.budget, found.beyond
    if limit is quota is weight is budget is beyond is msgspec.UNSET:
        return _quotas(world)
    await asked(
        world,
        SetTenant(
            tenant,
            round(limit * WHOLE) if isinstance(limit, int | float) else None,
            None if quota is msgspec.UNSET else -1 if quota is None else quota,
            None if weight is msgspec.UNSET else 1.0 if weight is None else weight,
            budget=None if budget is msgspec.UNSET else -1.0 if budget is None else budget,
            beyond=None if beyond is msgspec.UNSET else beyond or "warn",
            set_limit=limit is not msgspec.UNSET,
        ),
    )
    return _quotas(world)


async def _keep_rights(world: AppContext, rights: Rights) -> None:
    if rights != world.rights:
        await asked(world, Keep(RIGHTS_SETTING, msgspec.json.encode(rights).decode()))
        world.rights = rights


async def forget_quota(request: Request) -> list[Quota]:
    """Let a tenant be like all that were never named."""
    world = world_of(request)
    world.refuse_users(who_of(request))
    tenant = request.path_params["tenant"]
    if tenant not in [one.tenant for one in _quotas(world)]:
        raise rows.NoSuch(f"nothing is set for {tenant!r}", mend="`ganger quota` lists them")
    async with world.changing:
        await _keep_rights(world, world.rights.changed(tenant, TenantRights()))
    await asked(world, SetTenant(tenant, forget=True))
    return _quotas(world)


async def show_roles(request: Request) -> RolesAnswer:
    """Administrators, and the tokens that were given out (not what they say)."""
    world = world_of(request)
    world.refuse_users(who_of(request))
    roles = world.roles
    return RolesAnswer(
        admins=list(roles.admins),
        tokens=[
            TokenAnswer(id=one.id, user=one.user, role=one.role, made=one.made)
            for one in roles.tokens
        ],
    )


async def _set_roles(world: AppContext, change: Callable[[Roles], Roles]) -> Roles:
    """Change roles, one change after the other; what they were then."""
    async with world.changing:
        roles = change(world.roles)
        await asked(world, Keep(ROLES_SETTING, msgspec.json.encode(roles).decode()))
        world.roles = roles
    return roles


async def make_token(request: Request) -> TokenAnswer:
    """A new token for a user; its text is told once."""
    found = await body_of(request, NewToken)
    world = world_of(request)
    world.refuse_users(who_of(request))
    if world.shared:
        world.refuse_unknown(found.user)
    elif found.role != "admin":
        raise BadInput(
            "without --shared all jobs run as the daemon's user, so that a token lets its bearer do"
            " everything",
            where="role",
            mend="add --role admin, or serve several users: ganger up --shared",
        )
    token = ""

    def add(roles: Roles) -> Roles:
        nonlocal token
        roles, token = roles.with_token(found.user, found.role)
        return roles

    made = (await _set_roles(world, add)).tokens[-1]
    return TokenAnswer(id=made.id, user=made.user, role=made.role, made=made.made, token=token)


async def revoke_token(request: Request) -> RolesAnswer:
    """Let nobody in with this token any more."""
    world = world_of(request)
    world.refuse_users(who_of(request))
    await _set_roles(world, lambda roles: roles.without_token(request.path_params["token"]))
    return await show_roles(request)


def admin_order(is_admin: bool) -> Callable[[Request], Answer]:
    """An endpoint that makes an administrator of a user, or no longer."""

    async def endpoint(request: Request) -> RolesAnswer:
        world = world_of(request)
        world.refuse_users(who_of(request))
        user = request.path_params["user"]
        await _set_roles(world, lambda roles: roles.with_admin(user, is_admin))
        return await show_roles(request)

    what = "may" if is_admin else "may no longer"
    endpoint.__doc__ = f"The user {what} order nodes, the policy and the jobs of others."
    return endpoint


async def show_idle(request: Request) -> IdleAnswer:
    """When a job is idle, what follows, and which are now."""
    idleness = world_of(request).idleness
    with world_of(request).daemon.lock:
        found = idleness.jobs()
    return IdleAnswer(**msgspec.structs.asdict(idleness.rule), jobs=found)


async def set_idle(request: Request) -> IdleAnswer:
    """Another rule for idle jobs; what is left out stays."""
    found = await body_of(request, RuleChange)
    world = world_of(request)
    world.refuse_users(who_of(request))
    changes = {k: v for k, v in msgspec.structs.asdict(found).items() if v is not None}
    rule = msgspec.structs.replace(world.idleness.rule, **changes).check()
    await asked(world, Keep(IDLE_SETTING, msgspec.json.encode(rule).decode()))
    world.idleness.judge_by(rule)
    return await show_idle(request)


async def show_usage(request: Request) -> list[Usage]:
    """GPU-hours and cost by tenant since the journal began, or from `since` to `until` (Unix
    seconds); `prices` like `A100=2.5,V100=1`."""
    world = world_of(request)
    since, until = (
        round(number(request, name, most, 1e11) * SECOND)
        for name, most in (("since", 0), ("until", 1e11))
    )
    if since >= until:
        raise BadInput("since is not before until", where="since")
    part = {"since", "until"} & set(request.query_params)
    prices = prices_of(world.daemon) | parse_prices(request.query_params.get("prices", ""))

    def report() -> list[Usage]:
        with contextlib.closing(Journal(world.daemon.journal.path, readonly=True)) as journal:
            if part:
                return usage_between(world.daemon, journal, prices, since, until)
            return usage(world.daemon, journal, world.idleness.gpu_seconds, prices)

    return await world.looks.look(who_of(request), report)


async def show_notify(request: Request) -> NotifyAnswer:
    """Who is told of events of jobs; `notify.toml` is read again if it has changed."""
    world = world_of(request)
    world.refuse_users(who_of(request))
    return await asyncio.to_thread(world.notifier.answer)


async def test_notify(request: Request) -> NotifyAnswer:
    """Send a test to all who are told anything."""
    world = world_of(request)
    world.refuse_users(who_of(request))
    found = await asyncio.to_thread(world.notifier.answer)
    if found.error:
        raise BadInput(found.error)
    if not found.sinks:
        raise BadInput("no receiver is configured", where=found.path, mend="see docs/notify.md")
    world.notifier.tell(Message(event="test", at=time.time(), home=str(world.home)))
    return found


async def status(request: Request) -> Status:
    """How the daemon does."""
    return world_of(request).status()


async def shutdown(request: Request) -> dict[str, bool]:
    """Go down."""
    found = await body_of(request, Down)
    world = world_of(request)
    world.refuse_users(who_of(request))
    if found.jobs:
        with world.daemon.lock:
            active = [row for row, *_ in world.daemon.holds()]
        if active:
            await asked(world, Order(active, {"requeue": 0.0, "hold": 0.0}))
        while world.daemon.holds():
            await world.next_step(1.0)
    world.go_down()
    return {"down": True}


async def events(request: Request) -> Response:
    """Changes of jobs' states as server-sent events; `since` (or Last-Event-ID) is the revision
    after which to begin, by default now. With `steps` instead only that steps were made, whatever
    changed in them, as one event for all since the last one, at most ten a second."""
    world, who = world_of(request), who_of(request)
    daemon = world.daemon
    begin = request.headers.get("last-event-id") or request.query_params.get("since", "")
    if begin and not (begin.isascii() and begin.isdecimal() and len(begin) < 19):
        raise BadInput(f"{begin!r} is not a valid revision", where="since")
    if request.query_params.get("steps"):
        return StreamingResponse(_steps(world), media_type="text/event-stream")

    async def changes() -> AsyncIterator[bytes]:
        seen = int(begin) if begin else daemon.kernel.revision
        yield b": changes of jobs\n\n"
        while not world.leaving:
            with daemon.lock:
                found = list(daemon.feed.since(seen))
                seen = daemon.kernel.revision
                if not who.admin:
                    found = [one for one in found if world.owns(who, one.job - 1)]
            for one in found:
                yield b"id: %d\nevent: job\ndata: %s\n\n" % (one.revision, msgspec.json.encode(one))
            await world.next_step(1.0)

    return StreamingResponse(changes(), media_type="text/event-stream")


async def _steps(world: AppContext) -> AsyncIterator[bytes]:
    """That something changed, and now and then that nothing did."""
    seen, said = -1, time.monotonic()
    while not world.leaving:
        revision = world.daemon.kernel.revision
        if revision != seen:
            seen, said = revision, time.monotonic()
            yield b"event: steps\ndata: %d\n\n" % revision
            await asyncio.sleep(STEPS_APART_SECONDS)
            continue
        if time.monotonic() - said >= BEAT_SECONDS:
            said = time.monotonic()
            yield b": nothing\n\n"
        await world.next_step(1.0)


async def metrics(request: Request) -> Response:
    """For Prometheus."""
    from ganger.service.reports.metrics import CONTENT_TYPE, exposition

    return Response(exposition(world_of(request)), media_type=CONTENT_TYPE)
