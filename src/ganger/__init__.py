"""Ganger: one scheduler for deep-learning work on GPU clusters, simulated and live.

>>> import ganger
>>> run = ganger.simulate("trace.csv", "8x8xV100", "tiresias")      # doctest: +SKIP
>>> run.metrics["jct_mean_seconds"]                                 # doctest: +SKIP

Importing the package is lazy: a name is loaded when it is first used.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "simulate": "ganger.lab.api",
    "compare": "ganger.lab.api",
    "recommend": "ganger.lab.recommend.race",
    "allocate": "ganger.lab.allocate",
    "Setup": "ganger.lab.simulation",
    "load_trace": "ganger.workloads.formats",
    "load_cluster": "ganger.workloads.clusters",
    "list_recipes": "ganger.recipes.registry",
    "Client": "ganger.client.futures",
    "tune": "ganger.integrations.functions",
    "serve": "ganger.integrations.serving",
    "Endpoint": "ganger.integrations.serving",
}
_CALLED = {"list_recipes": "recipes"}
"""What is called otherwise where it lives: `ganger.recipes` is the package."""
__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), _CALLED.get(name, name))
    raise AttributeError(f"module 'ganger' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
