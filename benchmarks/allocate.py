"""How fast exact allocation is, beside general solvers on the same programmes.

    python benchmarks/allocate.py                    # everything; writes allocate.md and the plot
    python benchmarks/allocate.py --case max-min --jobs 8192

Every case runs in a fresh process on one thread. Ours is CPU seconds of the whole call, model
building and certificate included. HiGHS is called with its model built straight from arrays; of
ECOS and Clarabel only the solver's own CPU seconds count; of cvxpy models all of them. Needs
`cvxpy` and, for that column, `ecos`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import made, write

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
HERE = Path(__file__).parent
LOAD = 8.0


def distinct(jobs: int) -> tuple[Any, Any]:
    """All rows distinct: 5 types, gangs of 1 to 8, weights 1, 2 and 5, `LOAD` times the GPUs."""
    import numpy as np

    from ganger.solve.division.programme import proportional, shares

    rng = np.random.default_rng(jobs)
    rate = rng.lognormal(0, 1, (jobs, 1)) * rng.lognormal(0, 0.6, (jobs, 5))
    scale = rng.choice([1.0, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05])
    capacity = np.ceil(rng.uniform(0.5, 1.5, 5) * scale.sum() / 5 / LOAD)
    posed = shares(rate, scale, capacity)
    return posed, rng.choice([1.0, 2, 5], jobs) * proportional(posed) / scale


BEFORE = {"mib": 0.0}
"""The most memory that the process had taken before the clock ran: Python and its libraries."""


def peak() -> float:
    """The most memory that the process has taken so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def clocked(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds, and what came out."""
    BEFORE["mib"] = peak()
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def linear(posed: Any, pace: Any) -> Any:
    """The max-min programme as a model for HiGHS."""
    import numpy as np
    from scipy import sparse

    from ganger.solve.highs import model

    n, m = posed.rate.shape
    every = np.arange(n * m)
    use = sparse.csr_array(
        (np.repeat(posed.scale, m), (np.tile(posed.kind, n), every)), shape=(m, n * m)
    )
    busy = sparse.kron(sparse.eye_array(n), np.ones((1, m)))
    eff = sparse.csr_array(
        ((posed.rate / pace[:, None]).ravel(), (every // m, every)), shape=(n, n * m)
    )
    rows = sparse.block_array([[use, None], [busy, None], [-eff, np.ones((n, 1))]], format="csr")
    gain = np.append(np.zeros(n * m), 1.0)
    most = np.concatenate([posed.capacity, posed.limit, np.zeros(n)])
    return model(gain, sparse.csr_array(rows), most)


def case_max_min(jobs: int) -> dict[str, Any]:
    """Ours alone."""
    from ganger.solve.division.shares import max_min

    posed, pace = distinct(jobs)
    taken, answer = clocked(lambda: max_min(posed, pace))
    return {"seconds": taken, "value": answer.value, "gap": answer.gap, "steps": answer.steps}


def case_highs(jobs: int, method: str = "simplex") -> dict[str, Any]:
    """HiGHS on the same programme."""
    from ganger.solve.highs import maximise

    posed, pace = distinct(jobs)
    taken, found = clocked(lambda: maximise(linear(posed, pace), method=method))
    return {"seconds": taken, "value": found.value}


def case_ipm(jobs: int) -> dict[str, Any]:
    """HiGHS' interior point method, crossover included."""
    return case_highs(jobs, "ipm")


def through_cvxpy(jobs: int, solver: str) -> dict[str, Any]:
    """Another solver on the same programme; its own time, without cvxpy's model."""
    import cvxpy as cp

    posed, pace = distinct(jobs)
    stated = linear(posed, pace)
    x = cp.Variable(len(stated.gain), nonneg=True)
    whole = cp.Problem(cp.Maximize(stated.gain @ x), [stated.rows @ x <= stated.most])
    data, chain, _ = whole.get_problem_data(solver)
    taken, raw = clocked(lambda: chain.solve_via_data(whole, data))
    value = raw["info"]["pcost"] if solver == "ECOS" else raw.obj_val
    return {"seconds": taken, "value": abs(float(value))}


def case_ecos(jobs: int) -> dict[str, Any]:
    """ECOS."""
    return through_cvxpy(jobs, "ECOS")


def case_clarabel(jobs: int) -> dict[str, Any]:
    """Clarabel."""
    return through_cvxpy(jobs, "CLARABEL")


def case_pairs(jobs: int) -> dict[str, Any]:
    """26 model types, 4 gang sizes, 2 weights, every two of a size may share; from columns of
    jobs to the shares of every class."""
    import numpy as np

    from ganger.solve.division.classes import classes
    from ganger.solve.division.pairs import Pairs, max_min_pairs
    from ganger.solve.division.programme import proportional, shares

    rng = np.random.default_rng(0)
    rate = rng.lognormal(0, 1, (26, 1)) * rng.lognormal(0, 0.5, (26, 3))
    slower = rng.uniform(0.35, 1, (26, 26, 3, 2))
    model = rng.integers(0, 26, jobs)
    scale = rng.choice([1.0, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05])
    weight = rng.choice([1.0, 5], jobs, p=[0.8, 0.2])
    capacity = np.full(3, np.ceil(scale.sum() / 3 / LOAD))

    def solve() -> Any:
        found = classes([model.astype(float), scale, weight])
        kind, gang = model[found.first], scale[found.first]
        a, b = np.triu_indices(len(kind))
        share = (gang[a] == gang[b]) & ((a != b) | (found.size[a] > 1))
        a, b = a[share], b[share]
        a, b = np.where(kind[a] <= kind[b], a, b), np.where(kind[a] <= kind[b], b, a)
        part = slower[kind[a], kind[b]]
        alone = shares(rate[kind], gang, capacity)
        posed = Pairs(
            alone, a, b, rate[kind[a]] * part[..., 0], rate[kind[b]] * part[..., 1], found.size
        )
        answer = max_min_pairs(posed, weight[found.first] * proportional(alone) / gang)
        return answer, answer.x[found.of]

    taken, (answer, _) = clocked(solve)
    return {"seconds": taken, "value": answer.value, "gap": answer.gap}


def problem(jobs: int) -> Any:
    """`distinct` as a problem, with steps, prices, ages, and three entities of weights 1 to 3."""
    import numpy as np

    from ganger.workloads.problem import Column, Problem

    posed, _ = distinct(jobs)
    rng, none = np.random.default_rng(1), np.full(jobs, np.nan)
    types = tuple(f"t{j}" for j in range(5))
    steps = rng.lognormal(9, 1, jobs)
    age = rng.uniform(0, 2, jobs) * steps / posed.fastest()
    return Problem(
        [f"j{i}" for i in range(jobs)],
        types,
        posed.capacity,
        tuple(Column(name, "") for name in types),
        posed.rate,
        posed.scale,
        rng.choice([1.0, 2, 5], jobs),
        steps,
        age,
        age * rng.uniform(0.1, 1, jobs),
        none,
        rng.uniform(1, 5, 5),
        np.arange(jobs) % 3,
        ("a", "b", "c"),
        np.array([1.0, 2.0, 3.0]),
        np.zeros(3, bool),
        np.full(3, -1),
        np.zeros((0, 2), np.int64),
        np.zeros((0, 2, 5)),
    )


def case_objective(jobs: int, objective: str) -> dict[str, Any]:
    """One objective from arrays to the certified answer."""
    from ganger.lab.allocate import allocate

    posed = problem(jobs)
    taken, found = clocked(lambda: allocate(posed, objective))
    return {"seconds": taken, "value": found.value, "gap": found.gap}


class Written:
    """A problem as one writes it in cvxpy, in whole matrices."""

    def __init__(self, jobs: int, *, blind: bool = False) -> None:
        import cvxpy as cp
        import numpy as np

        self.p = p = problem(jobs)
        self.x = x = cp.Variable(p.throughput.shape, nonneg=True)
        self.rows = [cp.sum(x, axis=1) <= 1, p.gpus @ x <= p.gpus_of_type]
        self.rate = rate = np.ones_like(p.throughput) if blind else p.throughput
        self.eff = cp.sum(cp.multiply(rate, x), axis=1)
        self.even = rate @ p.gpus_of_type / p.gpus_of_type.sum()
        alone = p.gpus_of_type / (jobs * p.gpus[:, None])
        alone = (rate * alone / np.maximum(1, alone.sum(axis=1, keepdims=True))).sum(axis=1)
        self.independent = p.isolated_seconds_elapsed + p.steps / alone

    def solve(self, goal: Any) -> float:
        """The optimum by the default solver."""
        import cvxpy as cp

        whole = cp.Problem(goal, self.rows)
        whole.solve()
        return float(whole.value)

    def hierarchical(self) -> float:
        """A programme for each level; whose throughput has a price rises no further."""
        import cvxpy as cp
        import numpy as np

        from ganger.solve.division.hierarchy import Tree

        p, n = self.p, len(self.p.names)
        tree = Tree(
            np.zeros(4, int),
            np.append(1.0, p.entity_weight),
            np.zeros(4, bool),
            p.entity + 1,
            p.weight,
        )
        level, open_, first = np.zeros(n), np.ones(n, bool), None
        while open_.any():
            pace, t = tree.parts(open_) * self.even / p.gpus, cp.Variable(nonneg=True)
            held = self.eff >= level * (1 - 1e-7) + pace * t
            whole = cp.Problem(cp.Maximize(t), [*self.rows, held])
            whole.solve()
            first = float(t.value) if first is None else first
            level = level + pace * t.value
            paid = held.dual_value * level
            open_ &= paid <= 1e-6 * paid.max()
        assert first is not None
        return first


def case_model(jobs: int, objective: str) -> dict[str, Any]:
    """The same as a cvxpy model with the default solver."""
    import cvxpy as cp
    import numpy as np

    def solve() -> float:
        written = Written(jobs, blind=objective == "max-min-agnostic")
        p, eff, rate = written.p, written.eff, written.rate
        if objective == "hierarchical":
            return written.hierarchical()
        best, longest = rate.max(axis=1), p.steps.max()
        goals: dict[str, Callable[[], Any]] = {
            "max-min": lambda: cp.Maximize(
                cp.min(cp.multiply(p.gpus / p.weight / written.even, eff))
            ),
            "makespan": lambda: cp.Maximize(cp.min(cp.multiply(longest / p.steps, eff))),
            "max-sum": lambda: cp.Maximize(cp.sum(eff)),
            "max-sum-per-cost": lambda: cp.Maximize(cp.sum(cp.multiply(rate / p.price, written.x))),
            "fifo": lambda: cp.Maximize(cp.sum(cp.multiply(np.arange(jobs, 0, -1) / best, eff))),
            "finish-time-fairness": lambda: cp.Minimize(
                cp.max(
                    cp.multiply(
                        1 / written.independent,
                        p.seconds_elapsed + cp.multiply(p.steps, cp.inv_pos(eff)),
                    )
                )
            ),
        }
        goals["max-min-agnostic"] = goals["max-min"]
        value = written.solve(goals[objective]())
        return longest / value if objective == "makespan" else value

    taken, value = clocked(solve)
    return {"seconds": taken, "value": value}


def case_by_rows(jobs: int) -> dict[str, Any]:
    """Finish-time fairness with an expression for each job, as published schedulers write it."""
    import cvxpy as cp

    def solve() -> float:
        written = Written(jobs)
        p, ratios = written.p, []
        for i in range(jobs):
            eff = cp.sum(cp.multiply(p.throughput[i], written.x[i]))
            taken = p.seconds_elapsed[i] + p.steps[i] * cp.inv_pos(eff)
            ratios.append(taken / written.independent[i])
        return written.solve(cp.Minimize(cp.maximum(*ratios)))

    taken, value = clocked(solve)
    return {"seconds": taken, "value": value}


def case_water_filling(jobs: int) -> dict[str, Any]:
    """Lexicographic max-min."""
    from ganger.solve.division.lexicographic import water_filling
    from ganger.solve.division.shares import SharesPool

    posed, pace = distinct(jobs)
    pool = SharesPool(posed)
    taken, found = clocked(lambda: water_filling(pool, posed.capacity, pace))
    return {"seconds": taken, "value": found.even.value, "rounds": found.rounds}


def case_milp(jobs: int) -> dict[str, Any]:
    """Water-filling as published: a programme for the level, an integer one for bottlenecks."""
    import numpy as np
    from scipy import sparse

    from ganger.solve.highs import Model, maximise, maximise_whole

    posed, pace = distinct(jobs)
    stated = linear(posed, pace)
    k, n = len(posed.capacity) + jobs, jobs
    size = len(stated.gain) - 1
    fixed = sparse.csr_array(stated.rows)[:k, :size]
    eff = -sparse.csr_array(stated.rows)[k:, :size]

    def solve() -> Any:
        level, free = np.zeros(n), np.ones(n, bool)
        while free.any():
            top = sparse.csr_array((free * -1.0)[:, None])
            rows = sparse.block_array([[fixed, None], [-eff, -top]], format="csr")
            most = np.concatenate([stated.most[:k], -level * ~free * (1 - 1e-9)])
            best = maximise(
                Model(
                    np.append(np.zeros(size), 1.0),
                    sparse.csr_array(rows),
                    np.full(len(most), -np.inf),
                    most,
                    np.zeros(size + 1),
                    np.full(size + 1, np.inf),
                )
            )
            level = np.where(free, best.value, level)
            more = sparse.diags_array(level * free * 1e-4)
            rows = sparse.block_array([[fixed, None], [-eff, more]], format="csr")
            most = np.concatenate([stated.most[:k], -level * (1 - 1e-9)])
            gain = np.concatenate([np.zeros(size), free * 1.0])
            whole = np.concatenate([np.zeros(size, bool), np.ones(n, bool)])
            asked = Model(
                gain,
                sparse.csr_array(rows),
                np.full(len(most), -np.inf),
                most,
                np.zeros(size + n),
                np.where(whole, 1.0, np.inf),
                whole,
            )
            start = np.concatenate([best.x[:size], np.zeros(n)])
            rising = maximise_whole(asked, start, nodes=100_000).x[size:] > 0.5
            if (free == (free & rising)).all():
                break
            free &= rising
        return level

    taken, level = clocked(solve)
    return {"seconds": taken, "value": float(level.min())}


def case_matching(jobs: int) -> dict[str, Any]:
    """AlloX: 3 kinds of 128 machines."""
    import numpy as np

    from ganger.solve.matching import assign

    processing = np.random.default_rng(0).lognormal(3, 1, (jobs, 3))
    taken, found = clocked(lambda: assign(processing, np.full(3, 128)))
    return {"seconds": taken, "value": found.cost}


def case_hungarian(jobs: int) -> dict[str, Any]:
    """AlloX as published: a column for every machine and place."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    processing = np.random.default_rng(0).lognormal(3, 1, (jobs, 3)).repeat(128, axis=1)

    def solve() -> float:
        cost = np.concatenate([processing * k for k in range(1, jobs + 1)], axis=1)
        rows, columns = linear_sum_assignment(cost)
        return float(cost[rows, columns].sum())

    taken, value = clocked(solve)
    return {"seconds": taken, "value": value}


CASES: dict[str, Callable[..., dict[str, Any]]] = {
    name.removeprefix("case_").replace("_", "-"): found
    for name, found in list(globals().items())
    if name.startswith("case_")
}


def run(
    case: str, jobs: int, objective: str = "", limit: float = 500, load: float = LOAD
) -> dict[str, Any]:
    """One case in a fresh process; {} where it fails, `stopped` and the CPU seconds so far where it
    takes longer than `limit` seconds."""
    words = [
        sys.executable,
        __file__,
        "--case",
        case,
        "--jobs",
        str(jobs),
        "--objective",
        objective,
        "--load",
        str(load),
    ]
    print(case, jobs, objective, end=" ", file=sys.stderr, flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    before = used.ru_utime + used.ru_stime
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=limit,
            check=True,
            env={**os.environ, **dict.fromkeys(THREADS, "1")},
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = {"seconds": used.ru_utime + used.ru_stime - before, "stopped": True}
    except subprocess.SubprocessError as error:
        found = {}
        print(str(getattr(error, "stderr", ""))[-200:], file=sys.stderr)
    print(found, file=sys.stderr, flush=True)
    return found


def shown(found: dict[str, Any], key: str = "seconds") -> str:
    """A figure, or a dash where there is none; what was stopped took more."""
    more = "> " if found.get("stopped") and key == "seconds" else ""
    return f"{more}{found[key]:.3g}" if key in found else "-"


def ratio(other: dict[str, Any], ours: dict[str, Any]) -> str:
    """How many times longer the other took."""
    more = "> " if other.get("stopped") else ""
    return f"{more}{other['seconds'] / ours['seconds']:.0f}x" if other and ours else "-"


def agree(other: dict[str, Any], ours: dict[str, Any]) -> str:
    """The relative difference of the two values."""
    return f"{abs(other['value'] / ours['value'] - 1):.0e}" if "value" in other and ours else "-"


def linear_table() -> list[str]:
    lines = [
        "| jobs | ours | HiGHS simplex | HiGHS IPM | ECOS | Clarabel | best other / ours |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for jobs in (2048, 8192, 32768):
        ours = run("max-min", jobs)
        others = [run(case, jobs, limit=150) for case in ("highs", "ipm", "ecos", "clarabel")]
        best = min((o for o in others if "value" in o), key=lambda o: o["seconds"], default={})
        cells = [shown(ours), *map(shown, others), ratio(best, ours)]
        lines.append(f"| {jobs:,} | " + " | ".join(cells) + " |")
    return lines


def objective_table() -> list[str]:
    lines = [
        "| objective, 2,048 jobs | ours | cvxpy model | ratio | difference | gap |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for name in (
        "max-min",
        "max-min-agnostic",
        "finish-time-fairness",
        "makespan",
        "max-sum",
        "max-sum-per-cost",
        "fifo",
        "hierarchical",
        "isolated",
    ):
        ours = run("objective", 2048, name)
        models = [(name, {} if name == "isolated" else run("model", 2048, name))]
        if name == "finish-time-fairness":
            models.append((f"{name}, a row for each job", run("by-rows", 2048)))
        for told, other in models:
            lines.append(
                f"| {told} | {shown(ours)} | {shown(other)} | {ratio(other, ours)} |"
                f" {agree(other, ours)} | {shown(ours, 'gap')} |"
            )
    return [
        *lines,
        "",
        "Models are written in whole matrices, but for finish-time fairness also the"
        " published way, with an expression for each job. Isolated optimises nothing.",
    ]


def other_table() -> list[str]:
    lines = [
        "| | jobs | ours, CPU-s | MiB | the other way, CPU-s | MiB | ratio | difference |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|",
    ]
    rows: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = [
        ("max-min with pairs, by classes", n, run("pairs", n), {}) for n in (2048, 100_000)
    ]
    rows += [
        (
            "water-filling at load 2; by integer programmes",
            n,
            run("water-filling", n, load=2),
            run("milp", n, load=2),
        )
        for n in (96, 192, 384, 2048)
    ]
    matched, dense = run("matching", 512), run("hungarian", 512)
    rows.append(("AlloX matching, 384 machines; dense", 512, matched, dense))
    for name, jobs, ours, other in rows:
        lines.append(
            f"| {name} | {jobs:,} | {shown(ours)} | {shown(ours, 'mib')} |"
            f" {shown(other)} | {shown(other, 'mib')} | {ratio(other, ours)} |"
            f" {agree(other, ours)} |"
        )
    if matched and dense and "mib" in dense:
        own, theirs = (each["mib"] - each["before"] for each in (matched, dense))
        base = matched["before"]
        lines += [
            "",
            f"MiB are of the whole process. Of the matching's, {base:.0f} were Python and"
            f" its libraries before it began; beside them it took {own:.1f}, the dense one"
            f" {theirs:,.0f}.",
        ]
    return lines


def curve() -> list[tuple[int, dict[str, Any]]]:
    """Ours from a thousand jobs to a million."""
    return [(n, run("max-min", n)) for n in (1024, 4096, 16384, 65536, 262144, 1_000_000)]


def plot(points: list[tuple[int, dict[str, Any]]]) -> str:
    """CPU seconds against jobs on logarithmic axes, with n log n through the first point."""
    done = [(n, p["seconds"]) for n, p in points if p]
    first_n, first = done[0]

    def at(n: float, seconds: float) -> str:
        return f"{60 + 135 * (math.log10(n) - 3):.1f},{270 - 60 * (math.log10(seconds) + 3):.1f}"

    line = " ".join(at(n, s) for n, s in done)
    law = " ".join(at(n, first * n * math.log(n) / first_n / math.log(first_n)) for n, _ in done)
    marks = "".join(
        f'<circle cx="{a}" cy="{b}" r="3" fill="#2563eb"/>'
        for a, b in (at(n, s).split(",") for n, s in done)
    )
    grid = "".join(
        f'<line x1="60" x2="480" y1="{270 - 60 * (e + 3)}" y2="{270 - 60 * (e + 3)}"'
        f' stroke="#ddd"/>'
        f'<text x="52" y="{274 - 60 * (e + 3)}" text-anchor="end">{10.0**e:g}</text>'
        for e in range(-3, 2)
    ) + "".join(
        f'<text x="{60 + 135 * (e - 3)}" y="288" text-anchor="middle">{10**e:,}</text>'
        for e in range(3, 7)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="520" height="320" font-family="sans-serif"'
        f' font-size="11"><rect width="520" height="320" fill="white"/>{grid}'
        f'<polyline points="{law}" fill="none" stroke="#999" stroke-dasharray="4 3"/>'
        f'<polyline points="{line}" fill="none" stroke="#2563eb" stroke-width="2"/>{marks}'
        '<text x="60" y="16">max-min, 5 GPU types, all rows distinct: CPU seconds</text>'
        '<text x="270" y="308" text-anchor="middle">jobs (dashed: n log n)</text></svg>\n'
    )


def main() -> None:
    """One case, or everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--jobs", type=int, default=2048)
    parser.add_argument("--objective", default="")
    parser.add_argument("--load", type=float, default=LOAD)
    options = parser.parse_args()
    globals()["LOAD"] = options.load
    if options.case:
        words = [options.objective] if options.objective else []
        found = CASES[options.case](options.jobs, *words)
        found |= {"mib": peak(), "before": BEFORE["mib"]}
        print(json.dumps(found))
        return
    points = curve()
    text = [
        "# How fast exact allocation is",
        "",
        f"Made by {made()}, Python {platform.python_version()}, {platform.machine()}, one thread,"
        " beside other work. CPU seconds; of ECOS and"
        f" Clarabel the solver's own. Machines asked for are {LOAD:g} times those there are. A"
        " dash: not run. `>`: stopped at the limit of wall time, 150 s.",
        "",
        "## Max-min, 5 GPU types, all rows distinct",
        "",
        *linear_table(),
        "",
        "## Objectives beside their cvxpy models with the default solver",
        "",
        *objective_table(),
        "",
        "## Where structure helps most",
        "",
        *other_table(),
        "",
        "## Time against jobs",
        "",
        "![CPU seconds against jobs](../docs/allocate.svg)",
        "",
        "| jobs | CPU-s | MiB | gap | programmes |",
        "|--:|--:|--:|--:|--:|",
        *(
            f"| {n:,} | {shown(p)} | {shown(p, 'mib')} | {shown(p, 'gap')} | {shown(p, 'steps')} |"
            for n, p in points
        ),
        "",
    ]
    write(HERE / "allocate.md", "\n".join(text))
    (HERE.parent / "docs" / "allocate.svg").write_text(plot(points))


if __name__ == "__main__":
    main()
