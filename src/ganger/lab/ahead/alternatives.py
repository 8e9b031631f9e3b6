"""What a waiting job could ask for instead and start now: tried on copies of the kernel.

A change is offered only if the books have room for it, and the policy, asked on a copy in which
the job is cancelled and another one is submitted that asks for this, starts that one at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from ganger.core.books.ledger import Ledger
from ganger.core.events import Accepted, Batch, Command, Woke
from ganger.core.kernel import Kernel
from ganger.core.plan import Reason, Start
from ganger.core.spec import Locality, Role, Shape
from ganger.core.units import NEVER, SECOND, WHOLE, format_duration
from ganger.mechanisms.common.waiting import Release, Room, enough, releases, reserved_at, rooms

TRIED_MAX: Final = 6
"""So many changes that there is room for are tried on the policy."""
WAITING_MAX: Final = 5000
"""With more jobs in the queue than this, the policy takes too long to be asked on copies."""
_CORE, _GIB = WHOLE, 1024


class Alternative(NamedTuple):
    """A change with which the job, submitted anew, would start now: the options of `ganger submit`
    that state it, and over how many nodes it would run."""

    options: str
    nodes: int


class Waits(msgspec.Struct):
    """What a job waits for, and what would help. `room`: the best that is free; None: no node that
    is up could take any of it. `ends`: the releases after which there is room. `starts`: the policy
    starts it when it decides again."""

    shape: Shape
    free_gpus: int = 0
    room: Room | None = None
    fits: bool = False
    starts: bool = False
    ends: list[Release] = []
    alternatives: list[Alternative] = []


def waits(
    copy: Callable[[], Kernel], row: int, reasons: Sequence[Reason] = (), *, ask: bool = True
) -> Waits:
    """What the pending job `row` waits for. `copy` makes a kernel in the present state. `reasons`:
    those of the plan in force; `ask`: whether to ask the policy on copies, a decision each."""
    kernel = copy()
    view = kernel.view
    view.now, view.revision = kernel.now, kernel.revision
    shape, ledger = view.draft.shape(row), view.draft.ledger_of(row)
    if ledger is None:
        return Waits(shape)
    free = rooms(ledger, shape)
    found = Waits(
        shape,
        sum(room.gpus for room in free),
        free[0] if free else None,
        ledger.find(shape) is not None,
        ends=enough(ledger, shape, releases(view, ledger, shape)),
    )
    if not ask:
        return found
    found.starts = _starts(copy(), row)
    if found.starts:
        return found
    tried = 0
    for options, other, limit in _changes(
        kernel, ledger, row, reserved_at(reasons, int(kernel.jobs.within[row]))
    ):
        place = ledger.find(other)
        if place is None or tried == TRIED_MAX:
            continue
        tried += 1
        if _starts_as(copy(), row, other, limit):
            found.alternatives.append(Alternative(options, len({slot.node for slot in place})))
    return found


def _starts(kernel: Kernel, row: int) -> bool:
    """Whether the policy starts the job if it decides now. `kernel` is used up."""
    return _started(kernel, Batch(kernel.now, [Woke()]), row)


def _starts_as(kernel: Kernel, row: int, shape: Shape, limit: int) -> bool:
    """Whether the policy starts at once what is submitted now instead of the job, and asks for this
    shape and time limit (NEVER: as before). `kernel` is used up."""
    spec = msgspec.structs.replace(
        kernel.jobs.spec(row), name="instead", submitted=kernel.now, shape=shape, after=(), array=""
    )
    if limit < NEVER:
        spec = msgspec.structs.replace(spec, limit=limit, estimate=limit)
    new = kernel.jobs.n
    return _started(kernel, Batch(kernel.now, [Accepted(new, spec), Command(row, "cancel")]), new)


def _started(kernel: Kernel, batch: Batch, row: int) -> bool:
    plan = kernel.step(batch)
    actions = plan.actions if plan is not None else []
    return any(isinstance(action, Start) and action.job == row for action in actions)


_Change: TypeAlias = tuple[str, Shape, int]
"""Options, the shape that they ask for, and a time limit (NEVER: as it is)."""


def _changes(kernel: Kernel, ledger: Ledger, row: int, reserved: int) -> Iterator[_Change]:
    """What could be changed, what costs the job the least first. `reserved`: until then GPUs are
    lent to jobs that end in time."""
    shape, role = kernel.view.draft.shape(row), kernel.view.draft.shape(row).roles[0]
    for wider in _wider(ledger, shape):
        yield f"--locality {wider.name.lower()}", _with(shape, locality=wider), NEVER
    if len(shape.roles) == 1:
        yield from ((options, other, NEVER) for options, other in _of_one_role(ledger, shape))
    if shape.gpu_types:
        for name in kernel.nodes.types:
            if name and name not in shape.gpu_types:
                yield f"--gpus {name}:{shape.gpus}", _with(shape, gpu_types=(name,)), NEVER
    for label in shape.labels:
        left = tuple(each for each in shape.labels if each != label)
        yield f"no --label {label}", _with(shape, labels=left), NEVER
    if shape.pool:
        yield f"no --pool {shape.pool}", _with(shape, pool=""), NEVER
    if len(shape.roles) == 1 and shape.gpus > 1 and not role.least:
        yield from ((options, other, NEVER) for options, other in _smaller(ledger, shape))
    spare = reserved - kernel.now
    spare -= spare % SECOND
    if reserved < NEVER and 0 < spare < kernel.jobs.limit[row]:
        yield f"--time {format_duration(spare).replace(' ', '')}", shape, spare


def _wider(ledger: Ledger, shape: Shape) -> list[Locality]:
    """The first wider locality at which there is room: `any`, where all nodes are in one rack."""
    racks = len(set(ledger.rack)) > 1
    return [
        wider
        for wider in ((Locality.RACK, Locality.ANY) if racks else (Locality.ANY,))
        if shape.locality < wider and ledger.find(_with(shape, locality=wider)) is not None
    ][:1]


def _with(shape: Shape, **changes: object) -> Shape:
    return msgspec.structs.replace(shape, **changes)


def _role(shape: Shape, **changes: object) -> Shape:
    """The shape with another role, `size` and needs changed."""
    role = shape.roles[0]
    size = changes.pop("size", role.size)
    needs = msgspec.structs.replace(role.needs, **changes)
    return _with(shape, roles=(Role(role.name, size, needs=needs),))  # type: ignore[arg-type]


def _of_one_role(ledger: Ledger, shape: Shape) -> Iterator[tuple[str, Shape]]:
    """More and smaller workers, fewer CPUs, less memory."""
    role = shape.roles[0]
    gpus = role.needs.gpus
    if role.size == 1 and gpus % 2 == 0 and gpus and role.needs.share == WHOLE:
        half = _role(shape, size=2, gpus=gpus // 2)
        wide, option = half, "--workers 2"
        if half.locality <= Locality.NODE:
            wide, option = _with(half, locality=Locality.ANY), "--workers 2 --locality any"
        yield option, wide
    for name, free, unit, write in (
        ("cpus", ledger.free_cpus, _CORE, "--cpus {}"),
        ("memory", ledger.free_memory, _GIB, "--memory {}GiB"),
    ):
        needs = getattr(role.needs, name)
        if not needs:
            continue
        least = {have // size // unit for have in free for size in {1, role.size}}
        for count in sorted(least, reverse=True):
            less = _role(shape, **{name: count * unit})
            if 0 < count * unit < needs and ledger.find(less) is not None:
                yield write.format(count), less
                break


def _smaller(ledger: Ledger, shape: Shape) -> Iterator[tuple[str, Shape]]:
    """The largest gang that there is room for, of like workers or of one smaller worker."""
    role = shape.roles[0]
    each = role.needs.gpus if role.size > 1 else 1
    prefix = f"{shape.gpu_types[0]}:" if len(shape.gpu_types) == 1 else ""
    for count in range(shape.gpus // each - 1, 0, -1):
        less = _role(shape, size=count) if role.size > 1 else _role(shape, gpus=count)
        if ledger.find(less) is not None:
            yield f"--gpus {prefix}{count * each}", less
            return
