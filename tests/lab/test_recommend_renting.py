"""`ganger recommend JOB --rent FILE`: which machines for a job, how long and for how much."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cli.typed import typed
from ganger.client.request import JobRequest, read_file
from ganger.core.errors import BadInput
from ganger.core.profiles import Convergence, Memory, Profile, Profiles, Steps
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, Offer
from ganger.core.units import HOUR, MINUTE
from ganger.lab.recommend.renting import (
    Assumptions,
    Forecast,
    RentalAdvice,
    interval,
    recommend_machines,
)
from ganger.mechanisms.provisioning.rentals import Goal
from ganger.workloads.clusters import load_cluster
from ganger.workloads.measured.speeds import read_profiles

EXAMPLE = Path(__file__).parents[2] / "examples" / "renting"
SURE = Assumptions(error=0.0, draws=40)
"""Nothing is left to chance but the moment at which the job begins."""


def machines(*groups: NodeSpec) -> ClusterSpec:
    return ClusterSpec(groups, (GpuType("V100"), GpuType("K80", speed=0.25)))


def on_demand(price: float, count: int = 4, kind: str = "V100", gpus: int = 1) -> NodeSpec:
    return NodeSpec(count, gpus, kind, offer=Offer(price=price, rentable=True))


def asked(
    job: JobRequest, rent: ClusterSpec, goal: Goal, profile: Profile | None = None, **more: object
) -> RentalAdvice:
    profiles = Profiles({"m": profile} if profile else {})
    return recommend_machines(job, rent, profiles, goal, **{"assumed": SURE, **more})  # type: ignore[arg-type]


def told(each: Forecast | None) -> tuple[str, float, float] | None:
    """The machines, hours and USD."""
    if each is None:
        return None
    hours = float(each.seconds.mean()) / 3600
    return str(each.rental), round(hours, 6), round(float(each.dollars.mean()), 6)


TEN_HOURS = JobRequest(estimate="10h", max_gpus=4)


def test_the_cheapest_in_time_and_what_comes_nearest_by_hand() -> None:
    """10 h on a V100 for $3 an hour, 40 h on a K80 for $0.5; up to four of either go as many times
    as fast, so that each costs the same: $30, or $20 on K80."""
    rent = machines(on_demand(3.0), on_demand(0.5, kind="K80"))

    def find(goal: Goal) -> RentalAdvice:
        return asked(TEN_HOURS, rent, goal)

    assert told(find(Goal(10 * 3600)).pick) == ("4 x 1xK80", 10.0, 20.0)
    assert told(find(Goal(9 * 3600)).pick) == ("2 x 1xV100", 5.0, 30.0)
    assert told(find(Goal(dollars=25.0)).pick) == ("4 x 1xK80", 10.0, 20.0), "the fastest for that"
    poor = find(Goal(5 * 3600, 25.0))
    assert poor.pick is None
    assert told(poor.cheapest) == ("2 x 1xV100", 5.0, 30.0)
    assert told(poor.fastest) == ("4 x 1xK80", 10.0, 20.0)
    late = find(Goal(3600, 100.0))
    assert (told(late.fastest), late.cheapest) == (("4 x 1xV100", 2.5, 30.0), None)
    none = find(Goal(3600, 1.0))
    assert told(none.fastest) == ("4 x 1xV100", 2.5, 30.0)
    assert told(none.cheapest) == ("1 x 1xK80", 40.0, 20.0), "of equals that on fewer machines"
    assert none.nearest is none.cheapest


def test_a_whole_machine_is_paid_for_and_by_whole_hours_where_it_is_billed_so() -> None:
    """Three GPUs of a machine of four: 10 h / 3 at $6, rounded up to 4 h."""
    offer = Offer(price=6.0, per=HOUR, rentable=True)
    found = asked(
        JobRequest(estimate="10h", gpus=1, min_gpus=3, max_gpus=3),
        machines(NodeSpec(1, 4, "V100", offer=offer)),
        Goal(),
    )
    assert told(found.pick) == ("1 x 4xV100", round(10 / 3, 6), 24.0)


def test_speeds_that_may_be_off_make_an_interval_and_a_goal_that_is_surely_kept() -> None:
    """With a spread of 20 % the job takes up to 10 h x exp(1.28 x 0.2) = 12.9 h in nine of ten
    draws, so that 11 hours are not enough for one machine."""
    assumed = Assumptions(error=0.2, draws=2000)
    rent = machines(on_demand(3.0, count=1))
    once = asked(TEN_HOURS, rent, Goal(11 * 3600), assumed=assumed)
    assert once.pick is None
    assert once.fastest is not None
    low, high = interval(once.fastest.seconds / 3600)
    assert low == pytest.approx(10 * np.exp(-1.96 * 0.2), rel=0.05)
    assert high == pytest.approx(10 * np.exp(1.96 * 0.2), rel=0.05)
    assert 0.6 < once.fastest.timely(Goal(11 * 3600)) < 0.75
    assert asked(TEN_HOURS, rent, Goal(13.2 * 3600), assumed=assumed).pick is not None
    less = assumed._replace(chance=0.6)
    assert asked(TEN_HOURS, rent, Goal(11 * 3600), assumed=less).pick is not None


def test_the_spot_market_is_cheaper_and_may_take_longer() -> None:
    """A dollar an hour, but for every third hour, when it is too dear; the history is nine hours
    long. Who begins in the last six of them never waits."""
    prices = tuple((hour * HOUR, 9.0 if hour % 3 == 2 and hour < 6 else 1.0) for hour in range(10))
    offer = Offer("spot", prices=prices, bid=2.0, notice=MINUTE, rentable=True)
    rent = machines(on_demand(3.0), NodeSpec(4, 1, "V100", offer=offer))
    job = JobRequest(estimate="2h")
    found = asked(job, rent, Goal())
    assert told(found.pick) is not None
    assert found.pick is not None
    assert found.pick.rental.instance.offer.market == "spot"
    assert interval(found.pick.seconds)[1] > 2.9 * 3600
    assert found.pick.revoked > 0
    assert found.history == 9 * 3600
    hurried = asked(job, rent, Goal(2.5 * 3600))
    assert told(hurried.pick) == ("1 x 1xV100", 2.0, 6.0)
    stays = asked(JobRequest(estimate="2h", on_preempt="never"), rent, Goal())
    assert told(stays.pick) == ("1 x 1xV100", 2.0, 6.0), "it cannot leave a machine"


def test_parameter_servers_are_rented_too_and_more_workers_need_more_of_them() -> None:
    """8 s of work that n workers split, 1 GB of gradients, servers of 1 GB/s; 1000 batches. Cynthia
    reckons with max(8/n, 2n/m) s for n workers and m servers."""
    steps = Steps(8.0, 1.0, (1.0,) * 4, servers=1, split=True)
    job = JobRequest(steps=1000.0, model="m", max_gpus=4)
    rent = machines(on_demand(3.6, count=6))
    found = asked(job, rent, Goal(4000.0), Profile(steps=steps), recipes=("cynthia",))
    assert told(found.pick) == ("2 x 1xV100 and 1 x 1xV100 for parameters", 1.111111, 12.0)
    fast = asked(job, rent, Goal(2000.0), Profile(steps=steps), recipes=("cynthia",))
    assert fast.pick is None
    quick = asked(job, machines(on_demand(3.6, 9)), Goal(2000.0), Profile(steps=steps))
    assert quick.pick is not None
    assert (quick.pick.rental.gpus, quick.pick.rental.servers) == (4, 4)


def test_a_goal_for_the_loss_says_how_long_the_job_is() -> None:
    """A loss of 2/k + 0.5 after k epochs, and 20 of them in the ten hours: 0.7 after ten."""
    epochs = (1.0, 2.0, 5.0, 10.0, 20.0)
    curve = Convergence(epochs, tuple(2 / k + 0.5 for k in epochs), change=0.0)
    job = JobRequest(estimate="10h", model="m")
    rent = machines(on_demand(3.0))
    found = asked(job, rent, Goal(), Profile(convergence=curve), loss=0.7)
    assert told(found.pick) == ("1 x 1xV100", 5.0, 15.0)
    with pytest.raises(BadInput, match=r"never falls to 0.4 \(the nearest is above 0.5\)"):
        asked(job, rent, Goal(), Profile(convergence=curve), loss=0.4)
    flat = Convergence((1.0, 2.0, 5.0), (0.5, 0.5, 0.5), change=0.0)
    first = asked(job, rent, Goal(), Profile(convergence=flat), loss=0.7).pick
    assert first is not None
    assert first.seconds[0] / 36000 == pytest.approx(1 / flat.length()), "after the first epoch"
    with pytest.raises(BadInput, match="no losses are known of model 'm'"):
        asked(job, rent, Goal(), Profile(), loss=0.4)


def test_machines_on_which_the_job_cannot_run_are_left_out() -> None:
    rent = machines(on_demand(3.0), on_demand(0.1, kind="K80"))
    typed_job = JobRequest(estimate="1h", gpu_types=["V100"])
    assert told(asked(typed_job, rent, Goal()).pick) == ("1 x 1xV100", 1.0, 3.0)
    large = Profile(memory=Memory(20_000.0))
    with pytest.raises(BadInput, match="the job runs on none of the machines"):
        asked(JobRequest(estimate="1h", model="m"), rent, Goal(), large)


@pytest.mark.parametrize(
    ("job", "rent", "told_so"),
    [
        (JobRequest(name="a"), machines(on_demand(1.0)), "a: nothing says how long the job is"),
        (JobRequest(name="a", estimate="0s"), machines(on_demand(1.0)), "a: the job takes 0 s"),
        (JobRequest(estimate="99999d"), machines(on_demand(1.0)), "job: the job takes"),
        (TEN_HOURS, machines(NodeSpec(1, 1, "V100")), "--rent: nothing is for rent"),
        (TEN_HOURS, machines(NodeSpec(1, 1, "V100", offer=Offer(rentable=True))), "has no price"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered(job: JobRequest, rent: ClusterSpec, told_so: str) -> None:
    with pytest.raises(BadInput, match=told_so):
        asked(job, rent, Goal())
    with pytest.raises(BadInput, match="'fifo' does not choose machines"):
        asked(TEN_HOURS, machines(on_demand(1.0)), Goal(), recipes=("fifo",))


def test_the_example_is_answered_as_the_page_says() -> None:
    found = recommend_machines(
        read_file(EXAMPLE / "job.toml"),
        load_cluster(str(EXAMPLE / "prices.toml")),
        read_profiles(EXAMPLE / "profiles.toml"),
        Goal(8 * 3600, 100.0),
    )
    assert found.pick is not None
    assert str(found.pick.rental) == "4 x p3.2xlarge"
    json.dumps(found.to_json(), allow_nan=False)


def test_as_a_user_types_it(tmp_path: Path) -> None:
    words = ("recommend", str(EXAMPLE / "job.toml"), "--rent", str(EXAMPLE / "prices.toml"))
    known = ("--profiles", str(EXAMPLE / "profiles.toml"))
    text = typed(tmp_path, *words, *known, "--goal", "8h", "--budget", "100").stdout
    assert text.startswith("Rent 4 x p3.2xlarge: 6.5h (")
    assert max(map(len, text.splitlines()[1:8])) <= 90
    poor = typed(tmp_path, *words, *known, "--goal", "6h", "--budget", "60", code=1).stdout
    assert "No machines for rent do it within 6.0h and for $60.00 in 90% of the draws." in poor
    assert "The cheapest in time: 6 x p3.2xlarge:" in poor
    assert "The fastest within the budget: 4 x p3.2xlarge in us-east-1b (spot):" in poor
    found = json.loads(typed(tmp_path, *words, *known, "--json").stdout)
    assert found["pick"]["parts"][0]["market"] == "spot"
    assert found["pick"]["usd"]["low"] < found["pick"]["usd"]["mean"] < found["pick"]["usd"]["high"]
    assert "--rent" in typed(tmp_path, words[0], words[1], code=2).stderr
    assert "--goal" in typed(tmp_path, *words, "--goal", "0s", code=2).stderr
    assert "--cluster" in typed(tmp_path, *words, "--cluster", "1x1xV100", code=2).stderr
    (tmp_path / "jobs.csv").write_text("job,submitted,duration\na,0,30\n")
    assert "--goal" in typed(tmp_path, "recommend", "jobs.csv", "--goal", "6h", code=2).stderr


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    """The job as a daemon would refuse it; a model that the profiles do not have; no number. Names
    of machines reach the terminal in what can be printed."""
    rent = str(EXAMPLE / "prices.toml")

    def refused(job: str, *words: str) -> str:
        (tmp_path / "job.toml").write_text(f'format = "ganger.job/1"\ncommand = ["true"]\n{job}\n')
        return typed(tmp_path, "recommend", "job.toml", "--rent", rent, *words, code=2).stderr

    hour = 'estimate = "1h"\n'
    assert "gpus" in refused(hour + "gpus = -1")
    assert "on_preempt" in refused(hour + 'on_preempt = "restart"')
    assert "min_gpus" in refused(hour + "gpus = 4\nmin_gpus = 6\nmax_gpus = 5")
    profiles = ("--profiles", str(EXAMPLE / "profiles.toml"))
    assert "no profile of model 'x' (it has vision)" in refused(hour + 'model = "x"', *profiles)
    for option in ("--chance", "--speed-error", "--budget", "--loss", "--server-core"):
        assert f"{option}: nan is not a number" in refused(hour, option, "nan")
    (tmp_path / "z.toml").write_text(
        'format = "ganger.cluster/1"\n[[nodes]]\ngpus = 1\ngpu_type = "T4"\nprice = 1\n'
        'rentable = true\nzone = "us\\u001b[31mRED"\n'
    )
    shown = typed(tmp_path, "recommend", "job.toml", "--rent", "z.toml").stdout
    assert "\x1b" not in shown
    assert "us\\x1b[31mRED" in shown
    assert "speeds are in proportion to GPUs" in " ".join(shown.split())
