"""What a policy knows of durations and speeds: `--knows`."""

from __future__ import annotations

from ganger.core.errors import BadInput
from ganger.core.protocols import Ignorant, Oracle
from ganger.lab.simulating.setup import Setup
from ganger.sim.physics import Physics
from ganger.sim.truth import Noisy, Truth
from ganger.workloads.trace import Trace

PAST = ("history", "measured", "rolling", "group", "estimate", "nothing")
"""What an oracle can know without being told the truth."""


def told(knows: str) -> frozenset[str]:
    """What an oracle of that kind can tell: durations, throughputs."""
    if knows == "nothing":
        return frozenset()
    return frozenset(("durations",)) if knows in PAST else frozenset(("durations", "throughputs"))


def oracle_of_past(knows: str) -> Oracle:
    """An oracle that has only what it sees: one of `PAST`. Raises BadInput."""
    if knows not in PAST:
        raise BadInput(f"{knows!r} is not a valid value of --knows", mend=f"use {', '.join(PAST)}")
    if knows == "nothing":
        return Ignorant()
    if knows == "estimate":
        from ganger.estimate.stated import Stated

        return Stated()
    if knows == "measured":
        from ganger.estimate.measured import MeasuredSpeeds

        measured: Oracle = MeasuredSpeeds()
        return measured
    from ganger.estimate.history import History, like_helios, like_pai

    history: Oracle = History(
        blend=0.9 if knows == "history" else 0.0,
        alike=like_pai if knows == "group" else like_helios,
    )
    return history


def make_oracle(trace: Trace, physics: Physics, setup: Setup, truth: Truth | None = None) -> Oracle:
    """The oracle that `setup.knows` names. `truth`: from which one that knows durations has them
    (default: from the trace)."""
    if setup.knows in PAST:
        return oracle_of_past(setup.knows)
    truth = truth or Truth(trace.duration, physics)
    if setup.knows == "truth":
        return truth
    if setup.knows == "noisy":
        return Noisy(truth, setup.noise, setup.seed, trace.jobs, setup.speed_noise)
    if setup.knows == "losses":
        from ganger.estimate.convergence import FromLosses

        told = {name: physics.profiles.of(name).convergence for name in trace.declared.models}
        rules = {name: convergence for name, convergence in told.items() if convergence}
        if not rules:
            raise BadInput(
                "no job tells its losses",
                where="--knows losses",
                mend="give --profiles in which models have `convergence`",
            )
        losses: Oracle = FromLosses(rules, truth)
        return losses
    raise BadInput(
        f"{setup.knows!r} is not a valid value of --knows",
        mend=f"use truth, noisy, losses, {', '.join(PAST)}",
    )
