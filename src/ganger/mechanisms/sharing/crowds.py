"""Groups of jobs that compute on the same devices, kept while jobs come and go: a decision looks at
those that changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

Device: TypeAlias = tuple[int, int]
"""Node and number of the device in it."""
Group: TypeAlias = tuple[int, ...]
"""Jobs, ascending."""
Groups: TypeAlias = list[Group]


class Crowds:
    """The groups on all devices, each once, of which some job has a part. A cache."""

    __slots__ = ("_by_device", "_devices", "_stirred")

    def __init__(self) -> None:
        self._by_device: dict[Device, Group] = {}
        self._devices: dict[Group, int] = {}
        """By group, on how many devices it is."""
        self._stirred: set[Device] = set()

    def stir(self, devices: Iterable[Device]) -> None:
        """Something happened to a job that computes on these, or did."""
        self._stirred.update(devices)

    def changes(
        self, computing: Mapping[Device, list[int]], shares: Callable[[int], bool]
    ) -> tuple[Groups, Groups]:
        """The groups that are no more since the last call, and those that are new or of which a job
        was stirred. `computing`: the jobs that compute on each device; `shares`: whether a job
        has a part of its devices."""
        lost, stirred = dict[Group, None](), dict[Group, None]()
        for device in sorted(self._stirred):
            before = self._by_device.pop(device, ())
            if before:
                self._devices[before] -= 1
                if not self._devices[before]:
                    del self._devices[before]
                    lost[before] = None
            crowd = tuple(sorted(computing.get(device, ())))
            if crowd and any(map(shares, crowd)):
                self._by_device[device] = crowd
                self._devices[crowd] = self._devices.get(crowd, 0) + 1
                stirred[crowd] = None
        self._stirred.clear()
        return [group for group in lost if group not in self._devices], list(stirred)
