"""A plugin of pytest: the seconds of CPU that each test took, its processes' included, in the
report that `--junitxml` writes. Wall-clock time says more of what else the machine does."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

NAME = "cpu_seconds"


def spent() -> float:
    """CPU seconds of this process and of those of its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count from the first fixture on."""
    item.stash[_BEGAN] = spent()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Say it with the last report of the test."""
    item.user_properties.append((NAME, f"{spent() - item.stash[_BEGAN]:.3f}"))
    return (yield)


_BEGAN = pytest.StashKey[float]()
