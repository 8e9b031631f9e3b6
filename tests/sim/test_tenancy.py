"""Two and more jobs on one device: their parts of its time, their memory, and how fast they are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.plan import AnyAction, Plan, Slot, Start, Stop, Tune
from ganger.core.profiles import Memory, Profile, Profiles
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.estimate.sharing.rates import HOST_MIB_PER_SECOND, settling
from ganger.sim.tenancy import LEAST, Guest, Has, Terms, in_lanes, on_host, parts, slowed, speed
from worlds import Played, job, play

FIRM, LOOSE = Terms(1.0), Terms(0.0)
STEP = Terms(0.0, 1.0, "step-time", 10.0)
RATE = Terms(0.0, 1.0, "arrival-rate", 2.0)
NEED = Memory(6000.0, 4000.0, 0.5)
TURN = Terms(0.0, lane=1, turn="time")
EACH = Terms(0.0, lane=1, turn="iteration")
IDLE = Terms(0.0, lane=1, turn="wait")
SECOND_LANE = Terms(0.0, lane=2, turn="time")


def guest(job: int, demand: float, terms: Terms | None, **more: object) -> Guest:
    """One that asked for a whole GPU."""
    return Guest(job, demand, 1.0, terms, **more)  # type: ignore[arg-type]


def test_terms_are_read_from_knobs() -> None:
    assert Terms.of({"request": 0.5}) == Terms(0.5, 1.0, "", 0.0)
    knobs: dict[str, float | str] = {
        "request": 0.25,
        "limit": 0.75,
        "control": "step-time",
        "settle_s": 3.0,
        "lr": 1.0,
    }
    assert Terms.of(knobs) == Terms(0.25, 0.75, "step-time", 3.0)


def test_a_guaranteed_job_has_all_it_uses_and_the_other_half_of_the_rest_until_it_settles() -> None:
    found = parts([guest(3, 0.6, FIRM), guest(5, 0.7, STEP)])
    assert found[3] == Has(0.6, 0.0, 0.6)
    assert found[5] == pytest.approx((0.2, 10.0, 0.4))
    assert parts([guest(5, 0.7, STEP)]) == {5: Has(0.7, 0.0, 0.7)}, "alone nothing is to be found"


def test_two_opportunistic_jobs_divide_what_is_left() -> None:
    found = parts([guest(1, 0.5, FIRM), guest(2, 0.7, STEP), guest(3, 0.1, STEP)])
    assert [found[each].then for each in (1, 2, 3)] == pytest.approx([0.5, 0.4, 0.1])


def test_tgs_lets_both_have_what_its_controller_leaves() -> None:
    ramp = settling(0.7, 1.0, 0.01)
    found = parts([guest(1, 0.7, FIRM), guest(2, 1.0, RATE)])
    lasts = ramp.periods * 2.0
    assert found[1] == pytest.approx((ramp.before[0], lasts, ramp.after[0]))
    assert found[2] == (ramp.before[1], lasts, ramp.after[1])
    had = parts([guest(1, 0.7, FIRM), guest(2, 1.0, RATE, had=0.2504)])
    assert had[2].lasts == settling(0.7, 1.0, 0.25).periods * 2.0


def test_a_job_without_terms_takes_what_it_asked_for() -> None:
    found = parts([Guest(1, 0.9, 0.4, None), guest(2, 1.0, LOOSE)])
    assert [found[each].then for each in (1, 2)] == pytest.approx([0.4, 0.6])


def test_terms_of_a_lane_are_read_from_knobs() -> None:
    knobs: dict[str, float | str] = {"request": 0.0, "lane": 2.0, "turn": "wait"}
    assert Terms.of(knobs) == Terms(0.0, 1.0, "", 0.0, 2, "wait")


def test_the_jobs_of_a_lane_compute_one_after_the_other() -> None:
    """0.6 and 0.2 in equal time are 0.4 on average, of which there is enough; and a third one that
    waits."""
    found = parts([guest(1, 0.6, TURN), guest(2, 0.2, TURN), guest(3, 0.9, IDLE)])
    assert [found[each] for each in (1, 2, 3)] == [
        pytest.approx((0.3, 0.0, 0.3)),
        pytest.approx((0.1, 0.0, 0.1)),
        (0.0, 0.0, 0.0),
    ]
    waiting = parts([guest(1, 0.6, IDLE), guest(2, 0.5, FIRM)])
    assert [waiting[each].then for each in (1, 2)] == [0.0, 0.5], "nobody has the lane's turn"


def test_turns_by_iteration_are_as_long_as_iterations_take() -> None:
    guests = [guest(1, 0.8, EACH, memory=NEED), guest(2, 0.4, EACH, memory=Memory(1.0, 1.0, 1.5))]
    found = parts(guests)
    assert [found[each].then for each in (1, 2)] == pytest.approx([0.8 * 0.25, 0.4 * 0.75])


def test_lanes_and_others_divide_the_device() -> None:
    """A guaranteed job keeps 0.5. The lanes, of 0.6 on average and of 1, have half of the rest."""
    guests = [
        guest(1, 0.5, FIRM), guest(2, 0.4, TURN), guest(3, 0.8, TURN), guest(4, 1.0, SECOND_LANE)
    ]  # fmt: skip
    found = parts(guests)
    rate = 0.25 / 0.6
    assert [found[each].then for each in (1, 2, 3, 4)] == pytest.approx(
        [0.5, 0.5 * 0.4 * rate, 0.5 * 0.8 * rate, 0.25]
    )


# ---------------------------------------------------------------------- memory


def test_of_a_lane_all_persists_and_one_iteration_is_there() -> None:
    """6,000 each, and 4,000 in each of two lanes."""
    three = [guest(at, 0.5, TURN, memory=NEED) for at in (1, 2)]
    three.append(guest(3, 0.5, SECOND_LANE, memory=NEED))
    assert on_host(three, 26_000) == {}
    with pytest.raises(BadInput, match="jobs 1, 2, 3 need more than the 25999 MiB"):
        on_host(three, 25_999)
    loose = guest(4, 0.5, LOOSE, memory=NEED)
    assert on_host([*three, loose], 30_000) == {4: 6000.0}, "lanes move nothing"
    assert on_host([guest(1, 0.5, TURN, memory=NEED)], 9_000) == {}, "alone it is as without lanes"


def test_what_does_not_fit_beside_guaranteed_memory_is_on_the_host() -> None:
    """10,000 MiB each. Of 16,000 the guaranteed job leaves 6,000."""
    guests = [guest(1, 0.5, LOOSE, memory=NEED), guest(2, 0.5, FIRM, memory=NEED)]
    assert on_host(guests, 16_000) == {1: 4000.0}
    assert on_host(guests, 20_000) == {}
    assert on_host(guests, 19_999) == {1: 1.0}
    assert on_host(guests, 9_000) == {1: 10_000.0}, "no more than all of it"


def test_of_two_that_lose_memory_the_last_loses_first() -> None:
    guests = [guest(at, 0.5, LOOSE, memory=NEED) for at in (1, 2)]
    assert on_host(guests, 16_000) == {2: 4000.0}
    assert on_host([*guests, guest(3, 0.5, FIRM, memory=NEED)], 16_000) == {1: 4000.0, 2: 10_000.0}


def test_memory_that_would_have_to_move_and_cannot_is_refused() -> None:
    fixed = Memory(6000.0, 4000.0)
    guests = [guest(7, 0.5, FIRM, memory=NEED), guest(9, 0.5, LOOSE, memory=fixed)]
    with pytest.raises(BadInput, match="jobs 7, 9 need more than the 19999 MiB"):
        on_host(guests, 19_999)
    assert on_host(guests, 20_000) == {}
    without = [guest(7, 0.5, None, memory=fixed), guest(9, 0.5, LOOSE, memory=NEED)]
    assert on_host(without, 19_000) == {9: 1000.0}, "who has no terms keeps its memory"


def test_moved_memory_makes_iterations_longer_by_the_way_there_and_back() -> None:
    """Half a second alone, a second at half speed, and 0.5 s for 2 x a quarter of what the link
    carries in a second."""
    assert slowed(0.5, NEED, 0.0) == 0.5
    assert slowed(0.5, NEED, HOST_MIB_PER_SECOND / 4) == pytest.approx(0.5 / 1.5)


def test_speed_is_what_a_job_has_of_what_it_uses_or_asked_for() -> None:
    whole, part = guest(1, 0.8, LOOSE), Guest(1, 1.0, 0.4, Terms(0.4))
    assert speed(whole, Has(0.2, 5.0, 0.4), 0.0) == Has(0.25, 5.0, 0.5)
    assert speed(part, Has(0.5, 0.0, 1.0), 0.0) == Has(1.25, 0.0, 2.5)
    assert speed(whole, Has(0.0, 0.0, 1e-9), 0.0) == Has(LEAST, 0.0, LEAST), "nobody stands still"


GUESTS = st.lists(
    st.tuples(
        st.integers(1, 20).map(lambda n: n / 20),
        st.sampled_from(
            [FIRM, LOOSE, STEP, RATE, Terms(0.3, 0.6), None, TURN, EACH, IDLE, SECOND_LANE]
        ),
        st.sampled_from([NEED, Memory(0.0), Memory(500.0, 100.0, 0.1)]),
        st.sampled_from([0.0, 0.3, 1.0]),
    ),
    min_size=1,
    max_size=5,
)


@given(GUESTS, st.integers(1000, 40_000))
def test_time_and_memory_of_a_device_are_conserved(
    drawn: list[tuple[float, Terms | None, Memory, float]], size: int
) -> None:
    guests = [
        guest(at, demand, terms, memory=memory, had=had)
        for at, (demand, terms, memory, had) in enumerate(drawn)
    ]
    found = parts(guests)
    assert found.keys() == {each.job for each in guests}
    assert sum(each.now for each in found.values()) <= 1.0 + 1e-9
    assert sum(each.then for each in found.values()) <= 1.0 + 1e-9
    lanes = in_lanes(guests)
    turning = sum(
        sum(each.memory.persistent for each in lane) + max(each.memory.ephemeral for each in lane)
        for lane in lanes.values()
    )
    assume(turning <= size)
    moved = on_host(guests, size)
    peaks = {each.job: each.memory.peak for each in guests}
    assert all(0.0 < part <= peaks[job] for job, part in moved.items())
    others = [each for each in guests if not each.lane]
    firm = sum(each.memory.peak for each in others if each.terms is None or each.terms.request)
    firm += turning
    there = turning + sum(peaks[each.job] for each in others) - sum(moved.values())
    assert there <= max(size, firm)
    assert not moved or there == pytest.approx(max(size, firm)), "no more moves than has to"


# ---------------------------------------------------------------------- in the simulator


class Written:
    """Starts jobs at given seconds on the GPUs of node 0 by mask, with terms if it has any, and
    does what else is written."""

    name = "written"
    orders = (Tune,)

    def __init__(
        self,
        starts: list[tuple[int, int, dict[str, float | str] | None]],
        later: dict[int, list[AnyAction]] | None = None,
    ) -> None:
        self.starts, self.later = starts, later or {}

    def decide(self, view: View, memory: int | None) -> tuple[Plan, int]:
        """What is due. `memory`: up to when (seconds) what is written is done."""
        plan, wake, done = Plan([]), NEVER, memory or 0
        for row, (at, mask, knobs) in enumerate(self.starts):
            if view.now < at * SECOND:
                wake = min(wake, at * SECOND)
            elif view.at.phase[row] == Phase.PENDING and not view.at.attempt[row]:
                slot = Slot(0, mask, mask.bit_count(), share=250)
                plan.actions.append(Start(row, 1, (slot,)))
                if knobs is not None:
                    plan.actions.append(Tune(row, 1, knobs))
        for at, actions in self.later.items():
            if view.now < at * SECOND:
                wake = min(wake, at * SECOND)
            elif at > done:
                plan.actions += actions
                done = at
        plan.wake = wake
        return plan, done


def models(**demand: float) -> Profiles:
    """Models that use so much of a GPU."""
    return Profiles({name: Profile(utilisation={"gpu": used}) for name, used in demand.items()})


def box(gpus: int = 1, memory: int = 16_000) -> ClusterSpec:
    """A node."""
    return ClusterSpec((NodeSpec(1, gpus, "A"),), (GpuType("A", memory=memory),))


FIRMLY: dict[str, float | str] = {"request": 1.0}
LOOSELY: dict[str, float | str] = {"request": 0.0}
BY_STEP: dict[str, float | str] = {"request": 0.0, "control": "step-time", "settle_s": 10.0}
BY_RATE: dict[str, float | str] = {"request": 0.0, "control": "arrival-rate", "settle_s": 1.0}


def run(
    policy: Written, works: Sequence[tuple[str, float, int]], known: Profiles, gpus: int = 1
) -> Played:
    """Jobs named for their models: model, seconds alone, GPUs."""
    rows = [job(name, 0, lasts, size=size, model=name) for name, lasts, size in works]
    return play(policy, rows, box(gpus), profiles=known)


def test_an_opportunistic_job_runs_on_what_is_left_and_alone_as_ever() -> None:
    """For 10 s at 0.2 / 0.7, for 90 s at 0.4 / 0.7, then alone."""
    done = run(
        Written([(0, 1, FIRMLY), (0, 1, BY_STEP)]),
        [("a", 100, 1), ("b", 100, 1)],
        models(a=0.6, b=0.7),
    )
    left = 100 - 10 * 2 / 7 - 90 * 4 / 7
    assert done.jct() == pytest.approx([100, 100 + left])


def test_rates_settle_anew_when_the_company_changes_and_not_before() -> None:
    """From 50 s on c is beside b. Until 60 s b has half of 0.5, then half of 0.4."""
    known = models(a=0.5, b=1.0, c=1.0)
    jobs = [("a", 1000, 1), ("b", 100, 1), ("c", 100, 1)]
    done = run(Written([(0, 1, FIRMLY), (0, 1, BY_STEP), (50, 1, BY_STEP)]), jobs, known)
    had = 10 * 0.25 + 40 * 0.5 + 10 * 0.125
    assert done.ended("a") == 1000
    assert done.ended("b") == pytest.approx(60 + (100 - had) / 0.25)


def test_of_a_gang_the_gpu_counts_that_leaves_least() -> None:
    """b is on three GPUs: beside a, which leaves 0.2, beside c, which leaves 0.6, and alone."""
    known = models(a=0.8, b=0.8, c=0.4)
    done = run(
        Written([(0, 1, FIRMLY), (0, 0b111, LOOSELY), (0, 2, FIRMLY)]),
        [("a", 1000, 1), ("b", 100, 3), ("c", 1000, 1)],
        known,
        gpus=3,
    )
    assert done.ended("b") == pytest.approx(100 / 0.25)


def test_a_gang_and_its_companion_agree_on_when_rates_settle() -> None:
    """a, the production job, is on both GPUs of b: its averages are those of b's controller."""
    ramp = settling(0.7, 1.0, 0.01)
    known = models(a=0.7, b=1.0)
    done = run(
        Written([(0, 3, FIRMLY), (0, 3, BY_RATE)]), [("a", 1000, 2), ("b", 5000, 2)], known, gpus=2
    )
    first = ramp.periods * ramp.before[0] / 0.7
    assert done.ended("a") == pytest.approx(ramp.periods + (1000 - first) / (ramp.after[0] / 0.7))


def test_a_rate_goes_on_from_where_it_was_when_a_production_job_comes() -> None:
    """b has had the GPU alone: its controller begins at 1 when a comes at 20 s."""
    ramp = settling(0.7, 1.0, 1.0)
    known = models(a=0.7, b=1.0)
    done = run(Written([(20, 1, FIRMLY), (0, 1, BY_RATE)]), [("a", 100, 1), ("b", 900, 1)], known)
    assert ramp.periods > 110
    assert done.ended("a") == pytest.approx(20 + 100 * 0.7 / ramp.before[0])


def test_a_job_that_becomes_guaranteed_does_so_where_it_is() -> None:
    """At 10 s b's terms change: two guaranteed jobs then have 0.5 each."""
    known = models(a=0.9, b=0.9)
    later: dict[int, list[AnyAction]] = {10: [Tune(1, 1, {"request": 1.0})]}
    done = run(
        Written([(0, 1, FIRMLY), (0, 1, LOOSELY)], later), [("a", 100, 1), ("b", 100, 1)], known
    )
    assert done.ended("a") == pytest.approx(10 + 90 / (0.5 / 0.9))
    assert done.jobs.attempt[1] == 1


def test_a_new_attempt_has_the_terms_of_its_own_start() -> None:
    """Both request all and use 0.6 and 0.8: each has 1 / 1.4 of its speed. b stops at 10 s, and
    comes back at 20 s for what is left."""
    later: dict[int, list[AnyAction]] = {
        10: [Stop(1, 1)],
        20: [Start(1, 2, (Slot(0, 1, 1, share=250),)), Tune(1, 2, LOOSELY)],
    }
    known = models(a=0.6, b=0.8)
    done = run(
        Written([(0, 1, FIRMLY), (0, 1, FIRMLY)], later), [("a", 100, 1), ("b", 100, 1)], known
    )
    ends = 20 + (100 - 10 / 1.4 - 10)
    assert done.ended("a") == pytest.approx(ends)
    left = 100 - 10 / 1.4 - (ends - 20) * 0.5
    assert done.ended("b") == pytest.approx(ends + left)


def test_memory_on_the_host_slows_the_opportunistic_job_alone() -> None:
    """10,000 of 16,000 MiB each: 4,000 MiB of b come and go in each of its half seconds."""
    known = Profiles({n: Profile(utilisation={"gpu": 0.5}, memory=NEED) for n in "ab"})
    done = run(Written([(0, 1, FIRMLY), (0, 1, LOOSELY)]), [("a", 1000, 1), ("b", 100, 1)], known)
    longer = 1 + 2 * 4000 / (HOST_MIB_PER_SECOND * 0.5)
    assert done.ended("a") == 1000
    assert done.ended("b") == pytest.approx(100 * longer)


def test_memory_that_cannot_move_ends_the_run_with_one_error() -> None:
    fixed = Memory(10_000.0)
    known = Profiles({n: Profile(utilisation={"gpu": 0.5}, memory=fixed) for n in "ab"})
    with pytest.raises(BadInput, match="jobs 0, 1 need more than the 16000 MiB"):
        run(Written([(0, 1, FIRMLY), (0, 1, LOOSELY)]), [("a", 10, 1), ("b", 10, 1)], known)
