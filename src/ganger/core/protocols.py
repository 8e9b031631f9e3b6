"""The four things that can be exchanged: a policy, an engine, an oracle, a journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.profiles import PLAIN_PROFILE, Profile
from ganger.core.state.table import Ids

if TYPE_CHECKING:
    from ganger.core.events import Batch
    from ganger.core.plan import Plan
    from ganger.core.view import View


class Knows(Enum):
    """What an oracle's answers rest on; every result table states it."""

    TRUTH = "truth"
    NOISY = "noisy"
    HISTORY = "history"
    ESTIMATE = "estimate"
    NOTHING = "nothing"


class Policy(Protocol):
    """Decides. Pure: no clock, no file, no socket, no unseeded random number.

    `memory` is a plain msgspec struct that the kernel owns, hashes and journals; `decide` gets the
    last one (or None at first) and returns the next.
    """

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """The plan for `view`, and the memory to decide with next time."""
        ...


class Capabilities(msgspec.Struct, frozen=True):
    """What an engine can do. What it cannot do it refuses by an event: Refused, Failed, Unable.

    `actions`: the kinds of action, beside Start and Stop, that it carries out. `grants`: a job may
    hold devices for its children. `reports`: what trials and replicas tell arrives. `suspends`: a
    suspended attempt keeps its memory and goes on where it was; otherwise it saves and leaves.
    """

    actions: frozenset[str] = frozenset(
        {
            "Resize",
            "Suspend",
            "Resume",
            "Tune",
            "Provision",
            "Spawn",
            "Retire",
            "AskAt",
            "Route",
            "Lend",
        }
    )
    grants: bool = True
    reports: bool = True
    suspends: bool = True


def capabilities_of(engine: object) -> Capabilities:
    """What an engine says that it can do, as its `capabilities`; one that says nothing can do
    everything, as the simulator can."""
    found: Capabilities = getattr(engine, "capabilities", Capabilities())
    return found


@runtime_checkable
class Engine(Protocol):
    """Executes. The simulator, this machine, Slurm, Ray, Kubernetes, or a recorded log."""

    def poll(self, until: int) -> Batch | None:
        """The next batch: what happened, or a Woke at `until`. None when nothing is left.
        Only here does time pass."""
        ...

    def apply(self, plan: Plan, now: int) -> None:
        """Set the plan's actions going and return at once; outcomes come back as events."""
        ...


class Oracle(Protocol):
    """What may be believed about jobs. Every answer is an array as long as `ids`."""

    knows: Knows
    learns: bool
    """Whether `observe` must see every step."""
    steady: bool
    """Whether what `throughput` says of a job never changes."""
    learnt: Any
    """All that it has learnt, as a plain struct that a snapshot keeps; None if it never learns."""

    def duration(self, view: View, ids: Ids) -> NDArray[np.float64]:
        """Expected total run time at the size asked for, microseconds."""
        ...

    def throughput(
        self, view: View, ids: Ids, gpu_type: str, gpus: NDArray[Any], nodes: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Expected speed on `gpus` GPUs of `gpu_type` over `nodes` nodes; 1 = as asked for on the
        reference type in one node. Rows broadcast."""
        ...

    def profile(self, model: str) -> Profile:
        """What is published or measured about a model; the plain profile if nothing is."""
        ...

    def interference(self, models: Sequence[str], gpu_type: str, gpus: int) -> NDArray[np.float64]:
        """What is left of the speed alone of each of several jobs, one for each of `models`, that
        share all of `gpus` GPUs; NaN for a job of which that is not known."""
        ...

    def observe(self, view: View) -> None:
        """Learn from the events of `view`. The only way to learn anything."""
        ...


class Journal(Protocol):
    """Keeps the log: every batch and the plan that was decided on it."""

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Record one step. `plan` is None where the policy was not asked."""
        ...


def memory_type(decides: Callable[..., Any], name: str = "memory") -> Any:
    """The type of a memory, from the annotation of the function that takes it as `name`."""
    return get_type_hints(decides).get(name, Any)


def revived(memory: Any, decides: Callable[..., Any], name: str = "memory") -> Any:
    """A memory inside another one, which a snapshot gives back as plain data: as `decides` takes
    it under `name`."""
    if not isinstance(memory, dict | list):
        return memory
    return msgspec.convert(memory, memory_type(decides, name))


def no_oracle_answer(*like: Any) -> NDArray[np.float64]:
    """What an oracle that knows nothing says: not a number, as many as `like` broadcast to."""
    return np.full(np.broadcast_shapes(*map(np.shape, like)), np.nan)


class Ignorant:
    """The oracle that knows nothing."""

    knows = Knows.NOTHING
    learns = False
    steady = True
    learnt: Any = None

    def duration(self, view: View, ids: Ids) -> NDArray[np.float64]:
        """NaN: unknown."""
        return no_oracle_answer(ids)

    def throughput(
        self, view: View, ids: Ids, gpu_type: str, gpus: NDArray[Any], nodes: NDArray[Any]
    ) -> NDArray[np.float64]:
        """NaN: unknown."""
        return no_oracle_answer(ids, gpus, nodes)

    def profile(self, model: str) -> Profile:
        """Nothing is known."""
        return PLAIN_PROFILE

    def interference(self, models: Sequence[str], gpu_type: str, gpus: int) -> NDArray[np.float64]:
        """1 for a job alone, else NaN: unknown."""
        return np.full(len(models), np.nan if len(models) > 1 else 1.0)

    def observe(self, view: View) -> None:
        """Learns nothing."""
