"""What decides how a run goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ganger.core.profiles import Load, Profiles
from ganger.core.units import NEVER, SECOND
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage

if TYPE_CHECKING:
    from ganger.lab.serving.hosting import Traffic
    from ganger.lab.tuning.beside import Entry


@dataclass(frozen=True)
class Setup:
    """Everything that decides how a run goes, besides trace, cluster and recipe.

    `knows`: truth, noisy (with `noise` as the lognormal spread of run times, `speed_noise` of
    speeds), history (boosted trees over what like jobs took), rolling (the mean of the user's like
    jobs), group (the mean by group and GPUs), estimate (what the user stated: the estimate, else
    the time limit, else nothing), losses (a curve fitted to what jobs reported of their
    training, by the profiles' `convergence`; true speeds) or nothing. `until`: stop there
    (microseconds). `outages`: nodes that go down and come back.
    """

    seed: int = 0
    knows: str = "truth"
    noise: float = 0.5
    costs: Costs = field(default_factory=Costs)
    profiles: Profiles = field(default_factory=Profiles)
    outages: tuple[Outage, ...] = ()
    until: int = NEVER
    validate: bool = False
    speed_noise: float = 0.0
    inner: str = "fifo"
    """The recipe that divides what a job of kind `tune` holds among its children."""
    serving: str = ""
    """The recipe for services, which is asked before that for other jobs; "": one for all."""
    sharing: str = ""
    """The rule by which services and other jobs share the cluster, where each have a recipe of
    their own; "": services are asked first, and neither preempts the other."""
    loads: Mapping[str, Load] = field(default_factory=dict)
    """By service: its requests. They are reported to the recipe each `window` (microseconds)."""
    window: int = 10 * SECOND
    traffic: Traffic | None = None
    """Requests that the services of the trace answer one by one, reported in the same way."""
    searches: tuple[Entry, ...] = ()
    """The experiments whose searches are among the jobs of the trace."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """By GPU type, of a GPU for an hour; none: those of the cluster file, if it has any."""
    loan_rate: float = 1.0
    """The part of the price of a GPU on loan that the job pays which holds it, 0 to 1; the services
    that lend it pay the rest."""
    carbon: float = -1.0
    """Grams of CO2 equivalent for a kWh; -1: what the cluster file says, else the world's mean."""
    why: bool = False
    """Whether to add up why jobs wait (`Run.waited`)."""
