"""Several streams of requests as one, in order of arrival and in constant memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ganger.core.state.names import Names
from ganger.core.units import NEVER
from ganger.workloads.requests.columns import Chunk, Requests, joined


def merged(streams: Sequence[Requests], *, name: str = "requests", source: str = "") -> Requests:
    """All requests of all streams; those of one instant in the order of the streams. Equal names of
    models and tenants are the same."""

    def produce(whole: Requests) -> Iterator[Chunk]:
        iterators = [_renamed(each, whole) for each in streams]
        heads = [next(each, None) for each in iterators]
        while any(head is not None for head in heads):
            until = min(int(head.arrival[-1]) for head in heads if head is not None)
            parts: list[Chunk] = []
            for at, head in enumerate(heads):
                if head is None:
                    continue
                count = int(np.searchsorted(head.arrival, until, "right"))
                if count:
                    parts.append(head.take(slice(0, count)))
                left = head.take(slice(count, None))
                heads[at] = left if len(left) else next(iterators[at], None)
            rows = joined(parts)
            yield rows.take(np.argsort(rows.arrival, kind="stable"))
        for each in streams:
            whole.remarks.notes += each.remarks.lines

    return Requests(produce, name, source)


def _renamed(requests: Requests, whole: Requests) -> Iterator[Chunk]:
    """The chunks of a stream with the codes of the whole."""
    for chunk in requests.chunks():
        columns = chunk.columns
        columns["model"] = _codes(requests.models, whole.models)[chunk.model]
        if chunk.tenant is not None:
            columns["tenant"] = _codes(requests.tenants, whole.tenants)[chunk.tenant]
        yield Chunk(**columns)


def _codes(names: Names[str], whole: Names[str]) -> NDArray[np.int32]:
    return np.array([whole.code(names[at]) for at in range(len(names))], np.int32)


def asking(requests: Requests, *, model: str = "", slo: int = NEVER) -> Requests:
    """The same requests, all for one `model` where it is named; those without a deadline have `slo`
    microseconds."""

    def produce(some: Requests) -> Iterator[Chunk]:
        for chunk in requests.chunks():
            some.remarks = requests.remarks
            columns = chunk.columns
            if model:
                columns["model"] = np.full(len(chunk), some.models.code(model), np.int32)
            if slo < NEVER:
                due = np.full(len(chunk), NEVER) if chunk.deadline is None else chunk.deadline
                columns["deadline"] = np.where(due < NEVER, due, chunk.arrival + slo)
            yield Chunk(**columns)

    models = Names[str]() if model else requests.models
    return Requests(produce, requests.name, requests.source, models, requests.tenants)
