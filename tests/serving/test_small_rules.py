"""Small rules of the request plane: what is asked for once too often, or just not."""

from __future__ import annotations

from ganger.core.serving.world import Known, Lane, World
from ganger.lab.serving.yardsticks.future import Future
from ganger.mechanisms.serving.asking import Asking
from ganger.mechanisms.serving.batching import Single
from ganger.mechanisms.serving.choice import Exp4
from ganger.mechanisms.serving.composed import Composed
from ganger.mechanisms.serving.on_time import OnTime
from ganger.recipes.registry import make_router
from ganger.recipes.serving.clockwork_state import Memory, Waiting, unserved
from ganger.recipes.serving.foreseen_steps import cost_of
from serving.rig import MS, Asked, affine, columns, lanes, model, play, speaker, table
from serving.test_lanes_fail import played

MODELS = [model("a", affine(5, 1, 8)), model("b", affine(9, 2, 8))]


def test_a_refused_request_was_answered_by_no_model() -> None:
    asked = [Asked(0, within=2), Asked(0, model=1)]
    seen = play(make_router("clockwork"), MODELS, lanes(1), asked)
    assert (seen.outcomes[1], seen.by) == ("answered", [-1, 1])


def test_nothing_is_in_time_where_every_batch_takes_longer_than_there_is() -> None:
    assert set(OnTime.of([[0, 1000], [0, 1200]], slack=999).parts) == {0.0}
    assert OnTime.of([[0, 1000], [0, 1200]], slack=1000).parts[0] > 0.4


def test_the_rates_that_are_tried_are_parts_of_what_the_best_batches_of_all_lanes_can_do() -> None:
    """Two in 12 ms and three in 20 ms: 166.7 and 150 a second, and the first is the best size."""
    found = OnTime.of([[0, 10_000, 12_000, 20_000], [0, 5_000]], slack=50_000)
    assert found.rates[8] == 2 / 0.012 + 1 / 0.005
    assert found.rates[0] == 0.05 * found.rates[8]


def test_between_two_rates_the_part_in_time_is_between_theirs_and_beyond_it_is_shared() -> None:
    found = OnTime((1.0, 2.0, 4.0), (1.0, 0.5, 0.1))
    rates = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
    assert [found.at(rate) for rate in rates] == [1.0, 1.0, 0.75, 0.5, 0.3, 0.1, 0.05]


def test_a_class_that_exactly_the_part_that_has_to_agree_is_for_wins() -> None:
    """Of two models of equal weight each is for another class; half of the weight is enough."""
    both = [model("a", table(4)), model("b", table(6))]
    for agree, said in ((0.5, -1), (0.51, 7)):  # -1: what `by` says
        router = Composed("vote", Single(), asking=Asking(Exp4(0.1, False, agree, 7)))
        seen = play(
            router,
            both,
            lanes(2),
            [Asked(0, 2, 500, input=0)],
            families=[("two", (0, 1))],
            says=[[1], [2]],
        )
        assert seen.said == [said]


def test_a_lane_that_comes_back_has_nothing_to_do_yet() -> None:
    """Three requests each; lane 0 goes with two still waiting, which lane 1 does. When both are
    idle again, the first lane is as good as the other, and precedes it."""
    first = [Asked(0) for _ in range(6)]
    turns = [(1, 0, False), (2, 0, True)]
    seen = played("serve.least-loaded(size=1)", turns, [*first, Asked(200)], 2)
    assert [each.lane for each in seen.batches if each.tasks == (6,)] == [0]


def test_clockworks_lane_that_comes_back_is_free_at_once() -> None:
    """It was to be busy until 11 ms. The next request is through at 9 ms."""
    asked = [Asked(0, 1, 16), Asked(3, 0, 12)]
    seen = played("clockwork", [(1, 0, False), (2, 0, True)], asked, 1)
    assert seen.outcomes[1] == "answered"
    assert seen.ended[1] == 9


def test_clockwork_counts_the_inputs_of_the_very_requests_of_a_batch() -> None:
    """The first takes 6 ms of 6.5. The others have three inputs, and are late together."""
    asked = [Asked(0, 0, 6.5), Asked(0, 0, 7.2), Asked(0, 0, 7.4, items=2)]
    seen = play(make_router("clockwork(margin=0ms)"), MODELS, lanes(1), asked)
    assert [(each.tasks, each.ended) for each in seen.batches] == [((0,), 6)]
    assert seen.outcomes == ["answered", *["it could not be answered in time"] * 2]


def test_of_two_models_clockwork_looks_at_what_all_inputs_take() -> None:
    """Eight inputs take 13 of 30 ms, one of the other model 11 of 32."""
    asked = [Asked(0, 0, 30, items=8), Asked(0, 1, 32)]
    seen = play(make_router("clockwork(margin=0ms)"), MODELS, lanes(1), asked)
    assert [(each.model, each.ended) for each in seen.batches] == [(0, 13), (1, 24)]


def test_a_model_of_which_nothing_is_left_to_serve_is_loaded_nowhere_else() -> None:
    """One lane serves 100 ms of work in 100 ms: of the second model as much more waits."""
    waiting = [Waiting(rows=[0]), Waiting(rows=[1], demand=200_000.0)]
    memory = Memory(
        waiting,
        pool_of=[0],
        spans=[{}],
        lanes_of=[[0]],
        pools_of=[[0], [0]],
        holds=[0b11],
        free=[0],
        latest=0,
        places=[None, None],
        alike=[None, None],
        loads=True,
        mixed=False,
        unlike=False,
        some=0b11,
    )
    assert unserved(memory) == [1]


def test_what_a_request_costs_is_what_one_of_sixteen_like_it_does() -> None:
    """Prompts of 20 tokens and outputs of 4: 10 + 16 x 20 ms for the first tokens, and three steps
    of 10 + 16 ms."""
    known = [speaker("m", prefill=(10, 1, 0), decode=((1e9, 10, 1, 0),))]
    asked = columns([Asked(0, prompt=20, output=4)])
    world = World(known, lanes(1))
    world.requests.add(asked)
    world.future = Future.of(iter([asked]))
    assert cost_of(world, 0) == round((330 + 3 * 26) / 16 * MS)


def test_what_a_request_costs_is_what_the_quickest_lane_takes() -> None:
    quick = speaker("m", prefill=(10, 1, 0), decode=((1e9, 10, 1, 0),)).tokens["gpu"]
    slow = speaker("m", prefill=(30, 2, 0), decode=((1e9, 20, 2, 0),)).tokens["gpu"]
    asked, costs = columns([Asked(0, prompt=20, output=4)]), list[int]()
    for types in ({"a": quick}, {"a": slow}, {"a": slow, "b": quick}):
        known = Known("m", dict.fromkeys([(kind, 1.0) for kind in types], table(5)), tokens=types)
        world = World([known], [Lane(at, kind, device=at) for at, kind in enumerate(types)])
        world.requests.add(asked)
        world.future = Future.of(iter([asked]))
        costs.append(cost_of(world, 0))
    assert costs[0] == costs[2] < costs[1]


def test_of_many_queues_that_wait_for_more_each_is_ready_once_it_has_enough() -> None:
    """Ten models wait for a second request each; one has it after a millisecond."""
    models = [model(f"m{at}", table(5, 6)) for at in range(10)]
    asked = [*(Asked(0, at) for at in range(10)), Asked(1, 3)]
    router = make_router("serve.fixed-batch(size=2,timeout=50ms)")
    first, *others = play(router, models, lanes(1), asked).batches
    assert (first.model, first.began, first.tasks) == (3, 1, (3, 10))
    assert others[0].began == 50


def test_a_batch_that_took_longer_than_its_requests_have_makes_the_next_smaller() -> None:
    """Clipper's size grows by one with each full batch, until six take 11 ms of 10."""
    asked = [Asked(1000, within=10) for _ in range(40)]
    seen = play(make_router("clipper"), MODELS, lanes(1), asked)
    assert [len(each.tasks) for each in seen.batches] == [1, 2, 3, 4, 5, 6, 5, 6, 5, 3]


def test_a_request_for_a_model_that_no_lane_runs_is_dropped_at_once() -> None:
    both = [*MODELS, model("elsewhere", affine(1, 1), type_="tpu")]
    seen = play(make_router("serve.triton"), both, lanes(2), [Asked(3, model=2), Asked(3)])
    assert (seen.outcomes[0], seen.ended[0]) == ("no lane runs its model", 3)
    assert seen.outcomes[1] == "answered"


def test_a_vote_does_not_wait_for_a_model_that_no_lane_runs() -> None:
    """Nor is there an answer where no lane runs any of them."""
    far = [model(name, table(9), type_="tpu") for name in "bc"]
    family = [("either", (0, 1)), ("far", (1, 2))]
    asked = [Asked(0, 3, 500), Asked(5, 4, 500), Asked(9, 1, 500)]
    seen = play(
        make_router("clipper(selection=exp4)"),
        [model("a", table(4)), *far],
        lanes(1),
        asked,
        families=family,
    )
    assert seen.outcomes == ["answered", *["no lane runs its model"] * 2]
    assert seen.ended == [4, 5, 9]


def test_a_vote_does_not_wait_for_models_whose_queues_were_full() -> None:
    """The second vote finds two of three queues full, and is over with the third."""
    models = [model("a", table(4)), model("b", table(6)), model("slow", table(30))]
    router = Composed("vote", Single(), longest=1, asking=Asking(Exp4(0.1, False, 0.0, 0)))
    asked = [Asked(0, 3, 500), Asked(1, 3, 500)]
    seen = play(router, models, lanes(1), asked, families=[("all", (0, 1, 2))])
    assert [each.model for each in seen.batches] == [0, 1, 2, 0]
    assert (seen.outcomes, seen.ended) == (["answered"] * 2, [40, 44])
