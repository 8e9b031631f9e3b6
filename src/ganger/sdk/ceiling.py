"""Holds a job to the GPU memory that it stated: standard library only, Python 3.9 or newer.

Agents put this file on the path of such a job as `sitecustomize`, which Python runs before the
job's own code. Nothing is imported for the job: when it imports PyTorch, its allocator gets a
ceiling on every device (as `torch.cuda.set_per_process_memory_fraction` sets it, before the first
allocation); when it imports onnxruntime, sessions get the option `gpu_mem_limit`. An allocation
beyond it fails in the job. For other frameworks a line on stderr says that they are not held to it,
unless NVIDIA's MPS holds all of the job's memory. A Python that looks nowhere (`-I`, `-E`, `-S`)
does not run it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["CEILING", "limited", "watch"]

CEILING = "GANGER_GPU_MEMORY"
"""Set for workers whose job states its GPU memory, to MiB on each GPU."""
_BY_MPS = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_MIB = 1 << 20
_CUDA = "CUDAExecutionProvider"
_UNHELD = ("cupy", "jax", "mxnet", "paddle", "pycuda", "tensorflow")


def _ceiling() -> int:
    """Bytes on each GPU; 0: none was stated."""
    text = os.environ.get(CEILING, "")
    return int(text) * _MIB if text.isdecimal() else 0


def _hold_torch(torch: Any) -> None:
    """Once CUDA is there: no sooner, since a process that will fork must not have begun with it."""

    def hold() -> None:
        for device in range(torch.cuda.device_count()):
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(_ceiling() / total, 1.0), device)

    torch.cuda._lazy_call(hold)


def limited(providers: Any, options: Any, most: int) -> list[Any]:
    """Execution providers of onnxruntime with their options, that of CUDA held to `most` bytes."""
    found = []
    for i, each in enumerate(providers):
        name, own = each if isinstance(each, tuple) else (each, {})
        own = {**(options[i] if options else {}), **own}
        if name == _CUDA:
            own["gpu_mem_limit"] = str(min(int(own.get("gpu_mem_limit", most)), most))
        found.append((name, own) if own else name)
    return found


def _hold_onnxruntime(onnxruntime: Any) -> None:
    session = onnxruntime.InferenceSession
    begin = session.__init__

    def held(
        self: Any,
        model: Any,
        sess_options: Any = None,
        providers: Any = None,
        provider_options: Any = None,
        **more: Any,
    ) -> None:
        if providers is None and _CUDA in onnxruntime.get_available_providers():
            providers = onnxruntime.get_available_providers()
        if providers is not None:
            providers = limited(providers, provider_options, _ceiling())
        begin(self, model, sess_options, providers, None, **more)

    session.__init__ = held


def _name_unheld(module: Any) -> None:
    if _BY_MPS not in os.environ:
        stated = os.environ.get(CEILING, "")
        print(
            f"ganger: {module.__name__} is not held to the {stated} MiB of GPU memory that this job"
            " states: PyTorch and onnxruntime are, and under MPS every framework",
            file=sys.stderr,
        )


_AFTER: dict[str, Callable[[Any], None]] = {
    "torch": _hold_torch,
    "onnxruntime": _hold_onnxruntime,
    **dict.fromkeys(_UNHELD, _name_unheld),
}
"""What to do when the job has imported a framework."""


class _Loader:
    """A framework's own loader, and what is done once it has run."""

    def __init__(self, own: Any, after: Callable[[Any], None]) -> None:
        self._own, self._after = own, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: Any) -> Any:
        """As its own does."""
        return self._own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """As its own does; then hold it."""
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        _do(self._after, sys.modules.get(module.__name__, module))


class _Finder:
    """First among the finders; knows the frameworks, each once."""

    def __init__(self) -> None:
        self._waiting = dict(_AFTER)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """The spec that the other finders have, if it is a framework's."""
        after = self._waiting.pop(name, None)
        if after is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            self._waiting[name] = after
            return None
        spec.loader = _Loader(spec.loader, after)  # type: ignore[assignment]
        return spec


def _do(after: Callable[[Any], None], module: Any) -> None:
    """A framework that has changed must not break the job: it is told instead."""
    try:
        after(module)
    except Exception as why:
        name = module.__name__
        print(
            f"ganger: {name} is not held to the GPU memory that this job states: {why!r}",
            file=sys.stderr,
        )


def watch() -> None:
    """Hold what the job imports from now on, if it stated how much GPU memory it needs."""
    if _ceiling():
        sys.meta_path.insert(0, _Finder())


def _next() -> None:
    """Run the `sitecustomize` that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    watch()
    _next()
