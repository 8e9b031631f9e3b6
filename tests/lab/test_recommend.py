"""Which recipe to take: stories in which it is known who must win, and how surely."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ganger.cli.main import cli
from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, NodeSpec, Role, Shape
from ganger.lab.metrics import compute
from ganger.lab.recommend.race import Entrant, Recommendation, _Race, gap, recommend
from ganger.lab.recommend.recipe_filter import OBJECTIVES, objective_of, offers, plausible
from ganger.lab.recommend.table import verdict
from ganger.lab.simulation import Setup
from ganger.recipes.registry import find, recipes
from ganger.workloads.trace import Trace
from worlds import cluster, gpus, job, trace_of

from .builders import by_hand, run_of, table

pytestmark = pytest.mark.long

RACERS = ("fifo", "sjf", "las", "tiresias")


def bursts(seed: int = 0) -> Trace:
    """Every 2000 s one long job comes, then many short ones behind it."""
    rng, works = np.random.default_rng(seed), []
    for burst in range(60):
        start = 2000.0 * burst
        for number, lasts in enumerate((900.0, 800.0, *(10.0 + 20 * rng.random(8)))):
            works.append(job(f"{burst}.{number}", start + number * 0.001, lasts, 2))
    return trace_of(works)


def calm() -> Trace:
    """Nobody ever waits."""
    rng = np.random.default_rng(1)
    return trace_of([job(f"j{i}", 100.0 * i, 50.0 + 40 * rng.random(), 1) for i in range(300)])


def due() -> Trace:
    """Patient jobs, and behind them urgent ones that could still make it."""
    rng, works = np.random.default_rng(2), []
    for burst in range(60):
        start = 3000.0 * burst
        works += [
            job(f"p{burst}.{number}", start + number, 300.0, 2, deadline=start + 1e5)
            for number in range(4)
        ]
        for number in range(4):
            lasts = 50.0 + 20 * rng.random()
            works.append(
                job(f"u{burst}.{number}", start + 10 + number, lasts, 2, deadline=start + 700)
            )
    return trace_of(works)


def by_name(found: Recommendation) -> dict[str, Entrant]:
    """The entrants."""
    return {each.recipe: each for each in found.entrants}


def test_where_short_jobs_queue_behind_long_ones_sjf_is_taken_over_fifo() -> None:
    found = recommend(bursts(), cluster(1, 2), "jct", among=("fifo", "sjf", "placement"))
    assert found.pick.recipe == "sjf"
    assert found.better
    assert found.over_baseline is not None
    assert 1.2 < found.over_baseline.low < found.over_baseline.high < 10
    assert by_name(found)["placement"].dropped == "clearly worse"
    assert len(by_name(found)["placement"].figures) < len(found.pick.figures) == 5
    assert "It needs no information about durations." not in verdict(found)
    assert "It needs durations (here: --knows truth)." in verdict(found)


def test_the_gap_to_the_baseline_is_that_of_the_paired_runs() -> None:
    found = recommend(bursts(), cluster(1, 2), "jct", among=("fifo", "sjf"))
    fifo, sjf = by_name(found)["fifo"], found.pick
    logs = [math.log(fifo.figures[cell] / sjf.figures[cell]) for cell in sorted(sjf.figures)]
    half = 2.776 * np.std(logs, ddof=1) / math.sqrt(5)  # Student's t, 4 degrees of freedom
    assert found.over_baseline is not None
    assert found.over_baseline.value == pytest.approx(math.exp(np.mean(logs)))
    assert found.over_baseline.low == pytest.approx(math.exp(np.mean(logs) - half), rel=1e-3)


def test_who_is_surely_better_is_taken_though_somebody_unsure_has_the_best_mean() -> None:
    """`las` is far ahead in one part and behind in the other two; `sjf` is a bit ahead in all."""
    entrants = [Entrant(name, "nothing") for name in ("fifo", "las", "sjf")]
    for entrant, figures in zip(
        entrants, ((100.0, 101.0, 99.0), (10.0, 120.0, 115.0), (91.0, 90.0, 89.0)), strict=True
    ):
        entrant.figures.update({(part, 0): figure for part, figure in enumerate(figures)})
    race = _Race(
        objective_of("jct"),
        cluster(1, 2),
        Setup(knows="history"),
        (0,),
        [bursts()] * 3,
        1.0,
        1,
        entrants,
        "fifo",
        lambda done, total: None,
    )
    found = race.result({})
    assert found.pick.recipe == "sjf"
    assert found.better
    assert found.next is not None
    assert found.next.recipe == "las"
    said = " ".join(verdict(found))
    assert "las has the better mean (0.5" in said
    assert "but is not surely better than fifo." in said
    assert "the next" not in said
    assert [each.recipe for each in found.entrants] == ["sjf", "las", "fifo"]


def test_rows_are_in_order_of_the_comparison_with_the_pick() -> None:
    """Of the two that dropped out, the worse one ran the easier parts and has the better mean."""
    easy, hard = {(0, 0): 100.0}, {(0, 0): 100.0, (1, 0): 1000.0, (2, 0): 1000.0}
    entrants = [
        Entrant("fifo", "nothing", {cell: 3 * one for cell, one in hard.items()}),
        Entrant("las", "nothing", dict(hard)),
        Entrant("mlfq", "nothing", {cell: 9 * one for cell, one in easy.items()}, "worse"),
        Entrant("edf", "nothing", {cell: 5 * one for cell, one in hard.items()}, "worse"),
        Entrant("gavel", "throughputs", {}, "fails"),
    ]
    race = _Race(
        objective_of("jct"),
        cluster(1, 2),
        Setup(knows="history"),
        (0,),
        [bursts()] * 3,
        1.0,
        1,
        entrants,
        "fifo",
        lambda done, total: None,
    )
    found = race.result({})
    assert [each.recipe for each in found.entrants] == ["las", "fifo", "edf", "mlfq", "gavel"]
    gaps = [found.gap(each).value for each in found.entrants[1:-1]]
    assert gaps == pytest.approx([3, 5, 9])


def test_rows_left_out_and_what_recipes_were_not_told_are_noted() -> None:
    trace = bursts()
    trace.rows, trace.left_out, trace.notes = trace.jobs + 3, {"the jobs never started": 3}, ["cut"]
    found = recommend(trace, cluster(1, 2), among=("sjf",), setup=Setup(knows="nothing"))
    assert "3 of 603 rows of trace are not simulated: 3 (the jobs never started)." in found.notes
    assert found.notes.count("cut.") == 1
    assert any(note.startswith("sjf: it needs durations") for note in found.notes)
    assert found.to_json()["notes"] == found.notes


def test_recipes_race_on_the_jobs_that_finish_under_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The slowest of four jobs is killed under las only, whose own mean is thereby the better."""
    whole, partly = by_hand(), by_hand()
    partly.recipe, partly.jobs.state = "las", ["finished"] * 3 + ["failed"]
    partly.jobs.finish = partly.jobs.finish + 1
    assert compute(partly)["jct_mean_seconds"] < compute(whole)["jct_mean_seconds"]
    monkeypatch.setattr("ganger.lab.recommend.race.try_all", lambda *args, **more: [whole, partly])
    race = _Race(
        objective_of("jct"),
        cluster(1, 2),
        Setup(),
        (0,),
        [bursts()],
        1.0,
        1,
        [Entrant("fifo", "nothing"), Entrant("las", "nothing")],
        "fifo",
        lambda done, total: None,
    )
    race._heat(0, race.parts[0], (0,))
    fifo, las = (each.figures[0, 0] for each in race.entrants)
    assert las == pytest.approx(fifo + 1)


def test_where_nobody_waits_all_tie_and_the_one_in_use_stays() -> None:
    found = recommend(calm(), cluster(1, 8), "jct", current="las")
    assert found.pick.recipe == "las"
    assert not found.better
    assert any("No recipe is surely better than las" in note for note in found.notes)
    assert {each.recipe for each in found.entrants} > set(RACERS)
    for each in found.entrants:
        assert found.gap(each).value == pytest.approx(1.0, abs=0.02)


def test_where_urgent_jobs_wait_behind_patient_ones_deadlines_decide() -> None:
    found = recommend(due(), cluster(1, 2), "deadline")
    assert found.pick.recipe in {"edf", "chronus", "genie", "srtf"}
    assert found.pick.mean == 0.0
    assert by_name(found)["fifo"].mean == pytest.approx(0.5)
    assert found.over_baseline is not None
    assert found.over_baseline.value == pytest.approx(0.5)
    assert found.better


def test_a_trace_without_deadlines_cannot_be_judged_by_them() -> None:
    with pytest.raises(BadInput, match="no job has a deadline"):
        recommend(calm(), cluster(1, 8), "deadline")


def test_with_one_run_alone_nothing_is_sure() -> None:
    found = recommend(bursts(), cluster(1, 2), among=("sjf",), windows=1)
    assert found.pick.recipe == "sjf"
    assert not found.better
    assert "noise cannot be measured" in found.notes[0]
    assert found.to_json()["over_baseline"]["low"] is None


def test_who_takes_too_long_drops_out_and_says_so() -> None:
    with pytest.raises(BadInput, match="fifo takes more than 0 s of CPU time"):
        recommend(bursts(), cluster(1, 2), among=("sjf",), limit_seconds=0.0)
    slow = "pollux(population=60,generations=300)"
    found = recommend(bursts(), cluster(1, 2), among=("sjf", slow), limit_seconds=1.0)
    assert "takes more than 1 s of CPU time" in by_name(found)[slow].dropped


def test_a_pick_that_knew_durations_is_tried_again_on_what_like_jobs_took() -> None:
    found = recommend(bursts(), cluster(1, 2), among=("srtf",))
    assert found.pick.recipe == "srtf"
    assert found.told_less is not None
    assert found.over_baseline is not None
    assert found.told_less.value < found.over_baseline.value
    without = recommend(bursts(), cluster(1, 2), among=("srtf",), setup=Setup(knows="rolling"))
    assert without.told_less is None


def test_recipes_that_refuse_or_strand_jobs_drop_out() -> None:
    spec = ClusterSpec(
        (NodeSpec(gpus=2, gpu_type="V100", rack="a"), NodeSpec(gpus=2, gpu_type="V100", rack="b"))
    )
    trace = trace_of([job(f"j{i}", i, 10.0, 3 if i == 40 else 1) for i in range(60)])
    found = recommend(trace, spec, among=("yarn-cs", "las"))
    assert "never starts under yarn-cs" in by_name(found)["yarn-cs"].dropped
    assert not by_name(found)["las"].dropped


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_ends_at_its_total_and_results_do_not_depend_on_processes(workers: int) -> None:
    told: list[tuple[int, int]] = []
    found = recommend(
        bursts(),
        cluster(1, 2),
        among=RACERS,
        workers=workers,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    alone = recommend(bursts(), cluster(1, 2), among=RACERS)
    assert found.to_json() == alone.to_json()


def names(objective: str, there: frozenset[str], knows: str = "truth") -> set[str]:
    """The plausible ones."""
    return set(plausible(map(find, recipes()), OBJECTIVES[objective], there, knows)[0])


def test_what_is_plausible_follows_trace_cluster_knowledge_and_objective() -> None:
    assert "srtf" in names("jct", frozenset())
    assert "srtf" not in names("jct", frozenset(), "nothing")
    assert names("jct", frozenset()).isdisjoint({"optimus", "pollux", "gavel", "edf", "drf"})
    assert {"optimus", "pollux", "sia", "dragon"} <= names("jct", frozenset(("elastic jobs",)))
    blind = names("jct", frozenset(("elastic jobs",)), "rolling")
    assert "dragon" in blind
    assert "optimus" not in blind
    assert {"gavel", "allox"} <= names("fairness", frozenset(("GPU types",)))
    assert {"edf", "genie", "chronus", "fifo"} <= names("deadline", frozenset(("deadlines",)))
    _, why = plausible(map(find, recipes()), OBJECTIVES["jct"], frozenset(), "nothing")
    assert why["gavel"] == "must know throughputs"
    assert why["edf"] == "is made for deadline"
    assert why["philly"] == "finds no quotas"


def test_what_there_is_is_read_off_the_trace_and_the_cluster() -> None:
    plain = trace_of([job("a"), job("b")])
    assert offers(plain, cluster(1, 2)) == frozenset()
    rich = trace_of(
        [
            job("a", tenant="x", deadline=5.0, priority=1),
            job("b", tenant="y", shape=Shape((Role(size=2, least=1, most=4),))),
            job("c", size=2),
        ]
    )
    types = ClusterSpec((NodeSpec(gpus=2, gpu_type="V100"), NodeSpec(gpus=2, gpu_type="K80")))
    assert offers(rich, types) == {
        "tenants",
        "deadlines",
        "priorities",
        "elastic jobs",
        "GPU types",
    }
    assert gpus(2).least == gpus(2).most == 2


def test_what_nobody_can_know_is_refused_before_the_race() -> None:
    with pytest.raises(BadInput, match="no job tells its losses"):
        recommend(bursts(), cluster(1, 2), setup=Setup(knows="losses"))


def test_words_that_are_no_objective_are_refused() -> None:
    with pytest.raises(BadInput, match=r"no objective 'jtc' .*did you mean jct"):
        objective_of("jtc")


def test_gaps_pair_what_both_ran_and_count_seeds_of_one_part_once() -> None:
    one = Entrant("a", "nothing", {(0, 0): 1.0, (0, 1): 1.0, (1, 0): 2.0, (1, 1): 2.0})
    two = Entrant("b", "nothing", {(0, 0): 2.0, (0, 1): 2.0, (1, 0): 4.0, (2, 0): 99.0})
    found = gap(OBJECTIVES["jct"], one, two)
    assert found == (2.0, 2.0, 2.0, 1.0)
    assert found.sure
    missed = gap(OBJECTIVES["deadline"], one, two)
    assert missed.value == pytest.approx(1.5)
    assert not missed.sure


def test_deadlines_missed_count_who_never_finished() -> None:
    jobs = table(
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        [5, 9, math.nan, 9],
        [1, 1, 1, 1],
        state=["finished", "finished", "pending", "finished"],
    )
    jobs.deadline[:3] = (5.0, 8.0, 50.0)
    run = run_of(jobs)
    assert compute(run)["deadline_missed_fraction"] == pytest.approx(2 / 3)
    jobs.deadline[:] = math.nan
    assert math.isnan(compute(run)["deadline_missed_fraction"])


def on_the_command_line(*words: str) -> Result:
    """`ganger recommend` of the demo's workload with few runs."""
    few = ["--windows", "3", "--jobs", "100", "--workers", "1"]
    return CliRunner().invoke(cli, ["recommend", "demo", "--cluster", "8x8xV100", *few, *words])


def test_the_command_prints_a_verdict_and_a_table_that_fits_80_columns() -> None:
    done = on_the_command_line("--recipes", "sjf,srtf,fifo")
    assert done.exit_code in (0, 1), done.output
    assert done.output.startswith("Take ")
    assert "against the pick" in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_exit_codes_and_json_say_the_same() -> None:
    better = on_the_command_line("--recipes", "fifo,srtf", "--current", "fifo", "--json")
    told = json.loads(better.output)
    assert better.exit_code == (0 if told["better_than_baseline"] else 1)
    same = on_the_command_line("--recipes", "fifo", "--json")
    assert same.exit_code == 1
    assert json.loads(same.output)["pick"] == "fifo"
    wrong = on_the_command_line("--recipes", "fifoo")
    assert isinstance(wrong.exception, BadInput)
