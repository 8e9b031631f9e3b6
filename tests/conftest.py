"""Hypothesis profiles, and the rule that soak tests run only when they are asked for."""

from __future__ import annotations

import gc
import os
import platform

if platform.machine() == "x86_64":
    # What is on record was computed with one kernel of the BLAS and without AVX-512, with which
    # numpy's powers, logarithms and exponentials have other last digits, and ties fall otherwise.
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
    os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", "X86_V4 AVX512_ICL AVX512_SPR")

import pytest
from hypothesis import HealthCheck, Phase, settings

from soaking import many

_COMMON = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("default", _COMMON, derandomize=True, max_examples=25, database=None)
settings.register_profile(
    "soak", _COMMON, max_examples=many(1500), phases=[Phase.explicit, Phase.generate, Phase.shrink]
)
settings.register_profile(  # as default, but shows the first failure as found, at once
    "hunt", settings.get_profile("default"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

gc.disable()  # until all is collected: nothing that is imported becomes garbage

_GARBAGE = 20_000
"""New objects between two collections of garbage: looking for it takes longer than it saves."""


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no collection of garbage looks through it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `-m soak`, soak tests are not run; with it, each may take an hour, and those run too
    that then draw more examples (`examples` in soaking.py)."""
    if "soak" in config.getoption("markexpr"):
        for item in items:
            item.add_marker(pytest.mark.timeout(3600), append=False)
            if item.get_closest_marker("deep"):
                item.add_marker("soak")
        return
    soaking = [item for item in items if item.get_closest_marker("soak")]
    if soaking:
        config.hook.pytest_deselected(items=soaking)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
