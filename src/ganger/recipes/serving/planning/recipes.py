"""How many replicas of what services have, by cost."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from ganger.core.protocols import Policy
from ganger.core.units import DAY, HOUR, MINUTE, SECOND
from ganger.estimate.forecast import Forecaster, Holt, Linear, Naive, Seasonal
from ganger.mechanisms.scaling.fleets import Fleets
from ganger.recipes.registry import Count, Duration, Paper, Period, Positive, Within, recipe
from ganger.recipes.serving.planning.barista import Barista
from ganger.recipes.serving.planning.inferline import InferLine
from ganger.recipes.serving.planning.mark import Mark

Ahead = Annotated[int, Within(1, 10_000)]
"""Intervals that are forecast."""
MARK = Paper(
    "MArk: Exploiting Cloud Services for Cost-Effective, SLO-Aware Machine Learning Inference"
    " Serving",
    "Zhang et al.",
    "USENIX ATC",
    2019,
    "SLO, cost",
)
BARISTA = Paper(
    "BARISTA: Efficient and Scalable Serverless Serving System for Deep Learning Prediction"
    " Services",
    "Bhattacharjee et al.",
    "IC2E",
    2019,
    "SLO, cost",
)
INFERLINE = Paper(
    "InferLine: Latency-Aware Provisioning and Scaling for Prediction Serving Pipelines",
    "Crankshaw et al.",
    "SoCC",
    2020,
    "SLO, cost",
)


class Forecast(Enum):
    """How the load is forecast."""

    NAIVE = "naive"
    LINEAR = "linear"
    SEASONAL = "seasonal"
    HOLT = "holt"


def forecaster(kind: Forecast, interval: int, season: int) -> Forecaster:
    """The forecaster for series of one value each `interval`."""
    kinds: dict[Forecast, Forecaster] = {
        Forecast.NAIVE: Naive(),
        Forecast.LINEAR: Linear(),
        Forecast.SEASONAL: Seasonal(max(season // interval, 1)),
        Forecast.HOLT: Holt(),
    }
    return kinds[kind]


@recipe(
    MARK,
    needs="latencies",
    reconstructed="functions, spot and burstable instances are not part of it; the forecast is"
    " Holt's, not of a recurrent network; how long an instance is taken to be needed is ours",
)
def mark(
    forecast: Forecast = Forecast.HOLT,
    interval: Period = MINUTE,
    steps: Ahead = 50,
    room: Positive = 1.2,
    launch: Duration = 3 * MINUTE,
    cool: Count = 5,
    calm: Count = 6,
    warm: Count = 5,
    season: Period = DAY,
) -> Policy:
    """The types of devices of which a request costs least, for the load that is forecast.

    Each `interval` the next `steps` are forecast from the fullest pieces of up to 5 s, and `room`
    times that is provided for: where the devices that there are fall short, that type is added of
    which a request costs least over the time for which it is needed, with a launch that costs as
    much as `launch`. What a replica can do is what it can with the largest batch that fills and
    runs within the SLO. Types of which a request costs most go first, down to the most that the
    last `calm` plans wanted. For `cool` intervals after a change nothing is launched, unless what
    there is falls short at once. Before `warm` intervals are over the load is taken to stay.
    `season` is the length of a cycle where the forecast is `seasonal`.
    """
    how = forecaster(forecast, interval, season)
    return Fleets("mark", Mark(how, interval, steps, room, launch, cool, calm, warm))


@recipe(
    BARISTA,
    needs="latencies",
    reconstructed="the forecast is that of a cycle, moved, and corrected by how far the last ones"
    " were off; cores of a running replica are not scaled; a load that no type has places for is"
    " given to the one that is cheapest",
)
def barista(
    forecast: Forecast = Forecast.SEASONAL,
    interval: Period = 10 * MINUTE,
    season: Period = DAY,
    ahead: Duration = 0,
    errors: Count = 6,
) -> Policy:
    """Replicas of the one type that is cheapest for the load that will come when they are ready.

    The mean rate of each `interval` is forecast by the `season` before, for as far ahead as a
    replica loads (at least `ahead`), and corrected by the mean error of the last `errors`
    forecasts. A replica answers one request after another, each of which takes as long as 95 in 100
    do; as many as it serves within one SLO it is worth. The type whose replicas cost least together
    is taken, and the others go once its replicas answer.
    """
    how = forecaster(forecast, interval, season)
    return Fleets("barista", Barista(how, interval, ahead, errors))


@recipe(
    INFERLINE,
    needs="latencies",
    reconstructed="the sample of the planner is a Poisson process at the busiest window's rate, as"
    " recipes see counts; batches are the router's, and the planner's sizes only say what replicas"
    " can do; traffic is compared with the sample's at the end of windows; times are from memory",
)
def inferline(
    sample: Count = 6,
    every: Period = HOUR,
    calm: Duration = 15 * SECOND,
    back: Period = 30 * SECOND,
) -> Policy:
    """Every stage of a pipeline has its own replicas: the cheapest that keep the SLO together.

    After `sample` windows, and then after each `every`, a plan is searched by trying a sample of
    the load on it: from the fastest types on, that change of one stage is made that saves most
    (fewer replicas, larger batches, another type) and keeps 99 in 100 requests in time. Between
    plans a stage gets more replicas as soon as more comes than in the sample, in pieces of any
    length that a request needs at least: as many as keep their load as planned at the largest such
    rate. It gives some up once nothing changed for `calm`, by the fullest piece of 5 s within
    `back`. A replica of a pipeline then runs one model, and requests go to lanes: the router has to
    dispatch to lanes. A service of a single model is a pipeline of one stage.
    """
    return Fleets("inferline", InferLine(sample, every, calm, back))
