"""What is left of the speed of jobs that share GPUs, worked out by hand."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.plan import Plan, Slot, Start
from ganger.core.profiles import Measured, Profile, Profiles, Stages
from ganger.core.protocols import Ignorant, Oracle
from ganger.core.state.cluster import Nodes
from ganger.core.view import View
from ganger.estimate.sharing.interference import Interference, fitted, period
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulation import Setup
from ganger.sim.physics import Physics
from worlds import cluster, job, play, trace_of


def staged(*times: float, **more: float) -> Profile:
    """A model with these stages, whatever the number of GPUs."""
    return Profile(stages=(Stages(times, more.get("iteration", 0.0)),))


def paired(**beside: float) -> Measured:
    """Ten steps a second alone, and so many beside others, on one GPU of type A."""
    others = {name: {"A": {1: speed}} for name, speed in beside.items()}
    return Measured({"A": {1: 10.0}}, "A", {}, others)


def parts(profiles: Profiles, *models: str, gpus: int = 1) -> list[float]:
    return list(Interference(profiles, {}).parts(models, "A", gpus))


# ---------------------------------------------------------------------- stages


def test_the_two_pairs_of_muris_card() -> None:
    """(1,0,1,0) beside (0,1,0,1): period 2, each as fast as alone, half of the resources busy. Two
    equal (0,0,1,0): period 2, each at half its speed, a quarter busy."""
    known = Profiles(
        {"a": staged(1, 0, 1, 0), "b": staged(0, 1, 0, 1), "gpu only": staged(0, 0, 1, 0)}
    )
    assert period([(1, 0, 1, 0), (0, 1, 0, 1)]) == 2
    assert parts(known, "a", "b") == [1.0, 1.0]
    assert known.of("a").busy(1) == known.of("b").busy(1) == 1 / 4, "1/4 each: 1/2 of the pair"
    assert period([(0, 0, 1, 0)] * 2) == 2
    assert parts(known, "gpu only", "gpu only") == [0.5, 0.5]
    assert known.of("gpu only").busy(1) * sum(parts(known, "gpu only", "gpu only")) == 1 / 4


def test_the_best_arrangement_is_found_among_all() -> None:
    assert period([(1, 2, 3), (1, 2, 3)]) == 8, "max(1, 3) + max(2, 1) + max(3, 2)"
    assert period([(5, 1, 1), (1, 5, 1), (1, 1, 5)]) == 5 + 1 + 1, "the 5s in one slot"
    assert period([(5, 1, 1)] * 3) == 15, "those of one resource never are"
    assert period([(1, 1)] * 3) == 3, "three jobs on two resources: three slots"


def brute_period(stages: list[tuple[float, ...]]) -> float:
    """By all start slots, checking every slot for conflicts, as the card says it."""
    slots = max(len(stages), len(stages[0]))
    found = []
    for starts in product(range(slots), repeat=len(stages)):
        used: dict[int, list[tuple[int, float]]] = {}
        for times, start in zip(stages, starts, strict=True):
            for resource, time in enumerate(times):
                used.setdefault((start + resource) % slots, []).append((resource, time))
        resources = [[resource for resource, _ in slot] for slot in used.values()]
        if all(len(set(each)) == len(each) for each in resources):
            found.append(sum(max(time for _, time in slot) for slot in used.values()))
    return min(found)


@given(
    st.integers(2, 4).flatmap(
        lambda n: st.lists(st.tuples(*[st.integers(0, 9).map(float)] * n), min_size=2, max_size=4)
    )
)
def test_the_period_is_the_least_of_all_arrangements_without_conflict(
    stages: list[tuple[float, ...]],
) -> None:
    assert period(stages) == brute_period(stages)
    assert period(stages[::-1]) == period(stages)
    assert period(stages) >= max(sum(each) for each in zip(*stages, strict=True))


def test_an_iteration_is_never_shorter_than_the_longest_alone_and_has_its_overhead() -> None:
    lasting = staged(1, 1, iteration=6)
    known = Profiles({"long": lasting, "short": staged(1, 1, iteration=3)})
    assert parts(known, "long", "short") == [1.0, 0.5]
    slow = Stages((1, 1), 3, overhead=(1.0, 1.5, 2.0))
    known = Profiles({"long": lasting, "slow": Profile(stages=(slow,))})
    assert parts(known, "long", "slow") == [6 / 9, 3 / 9]
    assert parts(known, "slow", "slow", "slow", "slow") == pytest.approx([3 / 8] * 4), "4 x 2"


def test_stages_are_those_of_the_number_of_gpus_or_of_the_next_smaller() -> None:
    by_size = Profile(stages=(Stages((1, 3), gpus=2), Stages((4, 4), gpus=8)))
    assert [by_size.stages_on(gpus) for gpus in (1, 2, 7, 8, 9)] == [
        by_size.stages[at] for at in (0, 0, 0, 1, 1)
    ]
    assert parts(Profiles({"m": by_size}), "m", "m", gpus=4) == [4 / 6] * 2
    assert parts(Profiles({"m": by_size}), "m", "m", gpus=8) == [8 / 8] * 2
    assert by_size.busy(1) == 1 / 2


# ---------------------------------------------------------------------- tables, regression


def test_the_pair_table_comes_first_and_multiplies_beside_several() -> None:
    known = Profiles(
        {
            "a": Profile(measured=paired(b=8.0, c=5.0), stages=(Stages((1, 1)),)),
            "b": Profile(measured=paired(a=6.0), stages=(Stages((1, 1)),)),
            "c": Profile(utilisation={"gpu": 1.0}),
        }
    )
    assert parts(known, "a", "b") == [0.8, 0.6]
    assert parts(known, "a", "b", "c")[0] == pytest.approx(0.4)
    assert parts(known, "a", "a") == [1.0, 1.0], "not in the table, and its stages do not collide"
    assert np.isnan(parts(known, "a", "b", "c")[1:]).all(), "b was not measured beside c"
    assert parts(known, "c") == [1.0]


def test_without_measured_pairs_full_use_of_one_resource_is_taking_turns() -> None:
    known = Profiles(
        {"full": Profile(utilisation={"gpu": 1.0}), "half": Profile(utilisation={"gpu": 0.5})}
    )
    assert parts(known, "full", "full") == [1 / 2] * 2
    assert parts(known, *["full"] * 5) == [1 / 5] * 5, "for many as for two"
    assert parts(known, "half", "full") == [1 / 1.5] * 2
    assert parts(known, "full", "half", "half") == [1 / 2, *[1 / 1.75] * 2]
    assert np.isnan(parts(known, "full", "unheard of")).all()


def test_resources_that_only_one_uses_cost_nothing() -> None:
    known = Profiles(
        {"gpu": Profile(utilisation={"gpu": 0.9}), "net": Profile(utilisation={"net": 0.9})}
    )
    assert parts(known, "gpu", "net") == [1.0, 1.0]


def test_the_weights_are_fitted_to_measured_pairs() -> None:
    """Pairs made with weights of 0.5 and 3: the fit finds them, and says so of a third model."""

    def made(used: dict[str, float], **others: dict[str, float]) -> Profile:
        longer = {
            name: 1 + 0.5 * used["gpu"] * each["gpu"] + 3 * used["net"] * each["net"]
            for name, each in others.items()
        }
        return Profile(
            utilisation=used, measured=paired(**{name: 10 / one for name, one in longer.items()})
        )

    uses = {"a": {"gpu": 1.0, "net": 0.2}, "b": {"gpu": 0.4, "net": 0.9}}
    known = Profiles({name: made(used, **uses) for name, used in uses.items()})
    assert fitted(known) == pytest.approx({"gpu": 0.5, "net": 3.0}, rel=0.02)
    third = Profiles({**known.models, "c": Profile(utilisation={"gpu": 1.0, "net": 0.0})})
    assert parts(third, "c", "a")[0] == pytest.approx(1 / 1.5, rel=0.01)


def test_no_weight_makes_anybody_faster_for_company() -> None:
    lucky = Profile(utilisation={"gpu": 1.0}, measured=paired(a=20.0))
    assert fitted(Profiles({"a": lucky})) == {"gpu": 0.0}


# ---------------------------------------------------------------------- truth and belief

STAGED = Profiles({"a": staged(3, 1), "b": staged(2, 2), "c": staged(1, 5)})
GROUP = ("a", "b", "c")


def oracle(profiles: Profiles = STAGED, **how: Any) -> Oracle:
    """What a policy may believe of these models."""
    physics = Physics(Nodes(cluster(1, 1)), profiles)
    return make_oracle(trace_of([job("j")]), physics, Setup(profiles=profiles, **how))


class Together:
    """Starts everybody on the devices of `where`, a mask each."""

    name = "together"

    def __init__(self, *where: int) -> None:
        self.where = where

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """All at once."""
        share = 1000 // len(self.where)
        starts = [
            Start(row, 1, (Slot(0, mask, mask.bit_count(), 0, share),))
            for row, mask in enumerate(self.where)
            if row in view.pending.tolist()
        ]
        return Plan(list(starts)), None


@pytest.mark.parametrize("knows", ["truth", "noisy"])
def test_what_is_believed_without_noise_is_what_the_simulator_does(knows: str) -> None:
    told = oracle(knows=knows, noise=0.0).interference(GROUP, "V100", 1)
    works = [job(name, lasts=30 * part, model=name) for name, part in zip(GROUP, told, strict=True)]
    run = play(Together(1, 1, 1), works, cluster(1, 1), profiles=STAGED)
    assert told.tolist() == pytest.approx([4 / 9, 4 / 9, 6 / 9])
    assert run.jct() == pytest.approx([30] * 3, abs=1e-5)


def test_noise_misjudges_each_in_its_company_and_always_the_same_way() -> None:
    true = oracle().interference(GROUP, "V100", 1)
    noisy = oracle(knows="noisy", speed_noise=0.3)
    told = noisy.interference(GROUP, "V100", 1)
    again = noisy.interference(("c", "b", "a"), "V100", 1)
    assert told.tolist() == again[::-1].tolist(), "whatever the order"
    factors = told / true
    assert len(set(factors.tolist())) == 3
    assert (factors != 1).all()
    other = noisy.interference(GROUP, "K80", 1) / true
    wider = noisy.interference(GROUP, "V100", 2) / true
    seed = oracle(knows="noisy", speed_noise=0.3, seed=1)
    elsewhere = seed.interference(GROUP, "V100", 1) / true
    for different in (other, wider, elsewhere):
        assert not (different == factors).any()
    assert noisy.interference(("a",), "V100", 1).tolist() == [1.0]


def test_noise_is_as_large_as_it_was_told_to_be() -> None:
    names = [f"m{i}" for i in range(60)]
    noisy = oracle(Profiles(dict.fromkeys(names, staged(1, 1))), knows="noisy", speed_noise=0.3)
    told = [noisy.interference(pair, "A", gpus) for pair in pairwise(names) for gpus in (1, 2)]
    assert np.log(told).std() == pytest.approx(0.3, rel=0.2)


def test_who_knows_nothing_knows_nothing_of_sharing() -> None:
    assert np.isnan(Ignorant().interference(GROUP, "V100", 1)).all()
    assert Ignorant().interference(("a",), "V100", 1).tolist() == [1.0]


# ---------------------------------------------------------------------- who shares with whom


def test_of_a_gang_the_most_crowded_device_counts() -> None:
    """A gang on GPUs 0 and 1, another job on each of them: two on a device each, not three."""
    full = Profiles({"m": Profile(utilisation={"gpu": 1.0})})
    works = [
        job("gang", lasts=10, size=2, model="m"),
        job("left", lasts=10, model="m"),
        job("right", lasts=5, model="m"),
    ]
    run = play(Together(0b11, 0b01, 0b10), works, cluster(1, 2), profiles=full)
    assert run.jct() == [20.0, 20.0, 10.0]


def test_who_is_left_goes_on_at_the_speed_of_fewer() -> None:
    """Three at a third until 3 x 2 s, two at half until 6 + 2 x 2, the last alone for 2 more."""
    full = Profiles({"m": Profile(utilisation={"gpu": 1.0})})
    works = [job(f"j{i}", lasts=2.0 * (i + 1), model="m") for i in range(3)]
    run = play(Together(1, 1, 1), works, cluster(1, 1), profiles=full)
    assert run.jct() == pytest.approx([6, 10, 12], abs=1e-5)


def test_where_nothing_is_known_each_has_its_thousandths() -> None:
    known = Profiles({"m": staged(1, 1)})
    works = [job(f"j{i}", lasts=3, model="other") for i in range(3)]
    run = play(Together(1, 1, 1), works, cluster(1, 1), profiles=known)
    assert run.jct() == pytest.approx([3 / 0.333] * 3, abs=1e-5)
