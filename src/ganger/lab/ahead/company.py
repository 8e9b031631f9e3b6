"""The jobs on the same GPUs as a job: the class and the speed of each, and why they share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from ganger.client.answers import CompanyAnswer, Explanation
from ganger.core.books.ledger import Ledger, members
from ganger.core.errors import BadInput
from ganger.core.kernel import Kernel
from ganger.core.plan import WITHDRAWN, Placement
from ganger.core.units import WHOLE
from ganger.lab.ahead.explaining import Scene, in_numbers, users_of
from ganger.mechanisms.common.waiting import why_beside
from ganger.sim import tenancy
from ganger.sim.tenancy import Guest, Terms

GUARANTEED: Final = "guaranteed"
OPPORTUNISTIC: Final = "opportunistic"
"""Classes of jobs that share GPUs."""


def explain_company(scene: Scene, row: int, answer: Explanation) -> None:
    """Of a job that computes: the others on its GPUs, and the classes and speeds of all; nothing if
    it shares none."""
    kernel = scene.kernel
    ledger = kernel.view.draft.ledger_of(row)
    if ledger is None or row in ledger.asleep or row not in ledger.holds:
        return
    placement = ledger.holds[row][1]
    others = [job for job in users_of(kernel, row, placement) if job in ledger.holds]
    share = placement[0].share if placement else 0
    if not others:
        if share:
            part = f"{share / WHOLE:g}"
            answer.lines.append(
                f"It is alone on its GPUs, and holds {part} of each: others may join it."
            )
        return
    answer.company = [_companion(scene, ledger, each) for each in (row, *others)]
    mine, *theirs = answer.company
    answer.lines.append(f"It shares its GPUs{_said(mine)}.")
    answer.lines += [f"Job {each.label} is there, too{_said(each)}." for each in theirs]
    why = why_beside(scene.policy, kernel.view, kernel.memory, row, others)
    numbers = in_numbers(why, scene.now)
    if numbers:
        answer.lines.append(f"{scene.recipe} lets them be there together: {numbers}.")


def _companion(scene: Scene, ledger: Ledger, row: int) -> CompanyAnswer:
    """A job's class, its rate and its speed."""
    kernel = scene.kernel
    jobs, part = kernel.jobs, believed_part(kernel, ledger, row)
    measured = scene.measured(row)
    return CompanyAnswer(
        job=row + 1,
        label=scene.label(row),
        model=jobs.models[int(jobs.model[row])],
        standing=standing(kernel, row),
        rate=measured.rate,
        speed=measured.speed,
        believed=None if math.isnan(part) else part,
    )


def standing(kernel: Kernel, row: int) -> str:
    """The class that a policy has given a job; empty: none."""
    terms = _terms(kernel, row)
    if terms is None:
        return ""
    if terms.request >= 1.0:
        return GUARANTEED
    return f"{terms.request:g} to {terms.limit:g}" if terms.request > 0.0 else OPPORTUNISTIC


def _said(one: CompanyAnswer) -> str:
    """In words: ", as a guaranteed job, at 97.1% of its speed alone as measured"."""
    if one.standing in (GUARANTEED, OPPORTUNISTIC):
        article = "an" if one.standing == OPPORTUNISTIC else "a"
        of_class = f", as {article} {one.standing} job"
    elif one.standing:
        request, _, limit = one.standing.partition(" to ")
        of_class = f", with {request} of a GPU for sure and {limit} at most"
    else:
        of_class = ""
    if one.rate is not None and one.rate < 1.0:
        of_class += f", which may compute for {one.rate:.0%} of the time"
    if one.speed is not None:
        return f"{of_class}, at {one.speed:.1%} of its speed alone as measured"
    if one.rate is not None and one.rate < 1.0:
        return of_class  # what is believed is not so now
    if one.believed is None:
        return f"{of_class}; at what speed is not known"
    return f"{of_class}, at {one.believed:.1%} of its speed alone as far as is known"


def _terms(kernel: Kernel, row: int) -> Terms | None:
    """The terms that a policy has given the job."""
    knobs: Mapping[str, float | bool | str] = kernel.view.knobs.get(row, {})
    return Terms.of(knobs) if knobs.get("request", WITHDRAWN) != WITHDRAWN else None


def believed_part(kernel: Kernel, ledger: Ledger, row: int) -> float:
    """What sharing leaves of a job's speed, as the oracle has it, once rate controllers have
    settled: on the device where that is least; NaN where nobody knows."""
    mine = ledger.holds[row][1]
    parts = []
    for slot in mine:
        for device in members(slot.devices):
            jobs = [row, *_on(ledger, slot.node, device, row)]
            parts.append(_part(kernel, ledger, jobs, slot.node, mine) if jobs[1:] else 1.0)
    return math.nan if any(map(math.isnan, parts)) else min(parts, default=1.0)


def _on(ledger: Ledger, node: int, device: int, row: int) -> list[int]:
    """The other jobs that compute on a device, ascending."""
    return sorted(
        job
        for job, (_, placement) in ledger.holds.items()
        if job != row
        and job not in ledger.asleep
        and any(slot.node == node and slot.devices >> device & 1 for slot in placement)
    )


def _part(kernel: Kernel, ledger: Ledger, jobs: Sequence[int], node: int, mine: Placement) -> float:
    """What the first of these has of its speed on a device that it has with the others."""
    view, kind = kernel.view, kernel.nodes.type_specs[kernel.nodes.gpu_type[node]]
    models = [view.jobs.models[int(view.jobs.model[job])] for job in jobs]
    if all(_terms(kernel, job) is None for job in jobs):
        gpus = sum(slot.devices.bit_count() for slot in mine)
        return float(view.oracle.interference(models, kind.name, gpus)[0])
    guests: dict[int, Guest] = {}
    for job, model in zip(jobs, models, strict=True):
        shape, placement = ledger.holds[job]
        profile = view.oracle.profile(model)
        if placement[0].share and math.isnan(profile.compute(shape.gpus)):
            return math.nan
        terms = _terms(kernel, job)
        guests[job] = tenancy.guest_of(job, profile, shape, placement, terms)
    every = [guests[job] for job in sorted(guests)]
    try:
        moved = tenancy.on_host(every, kind.memory)
    except BadInput:  # what is believed of their memory need not be what they need
        return math.nan
    first = guests[jobs[0]]
    has = tenancy.parts(every)[first.job]
    return tenancy.speed(first, has, moved.get(first.job, 0.0)).then
