"""From the slices that there are to those that are wanted: which device becomes which, which
replicas stay where they are, and where each new slice starts.

Tan et al., arXiv 2109.11067, 2021 (section 6): what is new is made beside what it stands in for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from ganger.core.books.mig import MIG_SLICES, Device
from ganger.recipes.serving.slices.packing import Config


class Lying(NamedTuple):
    """A replica on a slice: its job and service, the kind of slice, and the slot of its start."""

    job: int
    service: int
    kind: int
    start: int

    @property
    def piece(self) -> tuple[int, int]:
        """As in a `Config`."""
        return self.kind, self.service


class Goal(NamedTuple):
    """Of a device: the replicas that stay, and what is new by kind, service and slot of start."""

    kept: list[int]
    missing: list[tuple[int, int, int]]


@lru_cache(4096)
def starts_of(
    gpu_type: str, taken: tuple[tuple[int, int], ...], kinds: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Where slices of these kinds can start beside those that are `taken`, each by start and kind;
    None where there is no room for all."""
    slices = MIG_SLICES[gpu_type]
    used = {slot for start, kind in taken for slot in range(start, start + slices[kind].memory)}

    def rest(at: int, used: set[int]) -> tuple[int, ...] | None:
        if at == len(kinds):
            return ()
        kind = slices[kinds[at]]
        for start in reversed(kind.starts):
            slots = set(range(start, start + kind.memory))
            if not slots & used and (more := rest(at + 1, used | slots)) is not None:
                return start, *more
        return None

    return rest(0, used)


def goal_of(gpu_type: str, config: Config, lying: Sequence[Lying]) -> Goal:
    """What becomes of a device. A replica that is wanted stays, but where slices that are new would
    find no room beside it: then the smallest go, too."""
    wanted, kept = Counter(config), list[Lying]()
    for each in sorted(lying, key=lambda each: (-each.kind, each.job)):
        if wanted[each.piece] > 0:
            wanted[each.piece] -= 1
            kept.append(each)
    while True:
        lacks = sorted((Counter(config) - Counter(each.piece for each in kept)).elements())[::-1]
        taken = tuple(sorted((each.start, each.kind) for each in kept))
        starts = starts_of(gpu_type, taken, tuple(kind for kind, _ in lacks))
        if starts is not None or not kept:
            places = zip(lacks, starts or (), strict=starts is not None)
            missing = [(kind, service, start) for (kind, service), start in places]
            return Goal([each.job for each in kept], missing)
        kept.pop()


def goals(
    gpu_type: str, configs: Sequence[Config], state: Mapping[Device, Sequence[Lying]]
) -> dict[Device, Goal]:
    """By device, what becomes of it: each configuration goes to a device that has it, then to one
    that has most of it, then to one that has nothing, then to any. Devices without one are to be
    empty in the end."""
    by_content = defaultdict[Config, list[Device]](list)
    for device, lying in sorted(state.items()):
        by_content[tuple(sorted(each.piece for each in lying))].append(device)
    chosen, rest = dict[Device, Config](), list[Config]()
    for config in configs:
        same = by_content[tuple(sorted(config))]
        if same:
            chosen[same.pop(0)] = config
        else:
            rest.append(config)
    some = defaultdict[tuple[int, int], list[Device]](list)
    for device, lying in sorted(state.items()):
        if device not in chosen:
            for piece in {each.piece for each in lying}:
                some[piece].append(device)
    pairs = set[tuple[int, Device, int]]()
    for at, config in enumerate(rest):
        for device in {device for piece in set(config) for device in some[piece]}:
            have = Counter(each.piece for each in state[device])
            pairs.add((-(have & Counter(config)).total(), device, at))
    done = set[int]()
    for _, device, at in sorted(pairs):
        if at not in done and device not in chosen:
            chosen[device] = rest[at]
            done.add(at)
    free = sorted((len(lying), device) for device, lying in state.items() if device not in chosen)
    others = [config for at, config in enumerate(rest) if at not in done]
    chosen |= {device: config for (_, device), config in zip(free, others, strict=False)}
    return {device: goal_of(gpu_type, chosen.get(device, ()), state[device]) for device in state}
