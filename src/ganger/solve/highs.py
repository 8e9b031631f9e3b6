"""Linear and integer programmes by HiGHS, its model built straight from arrays.

One thread, a fixed seed, budgets as counts: the same answer on a slow day.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import highspy
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BY_COLUMN = 1
_BY_ROW = 2
_MINIMISE = 1
_DUAL, _PRIMAL = 1, 4
_TOLERANCE = 1e-9
_PLAIN: dict[str, Any] = {
    "solver": "simplex",
    "presolve": "off",
    "simplex_scale_strategy": 0,
    "simplex_dual_edge_weight_strategy": 1,
}
_ANSWERS = (
    highspy.HighsModelStatus.kOptimal,
    highspy.HighsModelStatus.kInfeasible,
    highspy.HighsModelStatus.kUnbounded,
    highspy.HighsModelStatus.kUnboundedOrInfeasible,
)


class Solution(NamedTuple):
    """The best x found, what the objective is there, and what it can be at most.

    `duals[r]`: what one more unit of row r's binding side would gain (continuous programmes
    only). `bound` equals `value` where the optimum is proved. `work`: simplex iterations, or
    nodes.
    """

    x: Floats
    value: float
    bound: float
    duals: Floats
    work: int

    @property
    def gap(self) -> float:
        """How far the value may be from the best, relative to the bound."""
        return abs(self.bound - self.value) / max(abs(self.bound), 1e-12)


class Infeasible(ArithmeticError):  # noqa: N818 - reads as a sentence where it is raised
    """No x satisfies the rows. `rows` are some that cannot hold together, as far as known."""

    def __init__(self, rows: Ints) -> None:
        self.rows = rows
        super().__init__("no solution satisfies all rows")


class Unbounded(ArithmeticError):  # noqa: N818 - reads as a sentence where it is raised
    """The objective grows for ever. `columns` are those that grow, as far as known."""

    def __init__(self, columns: Ints) -> None:
        self.columns = columns
        super().__init__("the objective has no limit")


class Columns(NamedTuple):
    """A matrix by columns, as HiGHS takes it: where the entries of each begin (int32), in which
    rows they are (int32), and what they are."""

    indptr: Any
    indices: Any
    data: Floats

    @property
    def nnz(self) -> int:
        """How many entries."""
        return len(self.data)


class Model(NamedTuple):
    """Maximise `gain @ x` under `least <= rows @ x <= most` and `lower <= x <= upper`.

    `integer`: which x must be whole numbers.
    """

    gain: Floats
    rows: Any
    least: Floats
    most: Floats
    lower: Floats
    upper: Floats
    integer: NDArray[np.bool_] | None = None


def model(
    gain: Floats,
    rows: Any,
    most: Floats,
    *,
    least: Floats | None = None,
    upper: Floats | None = None,
    integer: NDArray[np.bool_] | None = None,
) -> Model:
    """A model whose x are >= 0, and whose rows are bounded above unless `least` is given."""
    return Model(
        gain,
        rows,
        np.full(len(most), -np.inf) if least is None else least,
        most,
        np.zeros(len(gain)),
        np.full(len(gain), np.inf) if upper is None else upper,
        integer,
    )


def _prepared(options: dict[str, Any]) -> Any:
    engine: Any = highspy._Highs()  # type: ignore[attr-defined]  # the public class around it starts threads
    settings: dict[str, Any] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "small_matrix_value": 1e-12,
        "primal_feasibility_tolerance": _TOLERANCE,
        "dual_feasibility_tolerance": _TOLERANCE,
        **options,
    }
    for name, value in settings.items():
        engine.setOptionValue(name, value)
    return engine


def _engine(posed: Model, options: dict[str, Any]) -> Any:
    return _given(_prepared(options), posed)


def _given(engine: Any, posed: Model) -> Any:
    """The engine with this model, and nothing of one before it."""
    by_column = isinstance(posed.rows, sparse.csc_array | Columns)
    rows: Any = posed.rows if by_column else sparse.csr_array(posed.rows)
    whole = np.zeros(len(posed.gain), np.int32)
    if posed.integer is not None:
        whole = posed.integer.astype(np.int32)
    engine.passModel(
        len(posed.gain),
        len(posed.most),
        rows.nnz,
        _BY_COLUMN if by_column else _BY_ROW,
        _MINIMISE,
        0.0,
        -posed.gain,
        posed.lower,
        posed.upper,
        posed.least,
        posed.most,
        rows.indptr.astype(np.int32),
        rows.indices.astype(np.int32),
        rows.data,
        whole,
    )
    return engine


def maximise(posed: Model, *, method: str = "simplex", plain: bool = False) -> Solution:
    """The optimum of a continuous programme: a vertex with `simplex`, else by `ipm`.

    `plain`: small and scaled well, so that looking at it first would take longer than it saves.
    Raises Infeasible or Unbounded; ArithmeticError if HiGHS gives up.
    """
    ways = [_PLAIN] if plain else []
    ways += [{"solver": method}, {"solver": "simplex", "presolve": "off"}, {"solver": "ipm"}]
    for options in ways:
        engine = _engine(posed, options)
        engine.run()
        if engine.getModelStatus() in _ANSWERS:  # numbers far apart make HiGHS give up at times
            break
    status = engine.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        _explain(engine, posed, status)
    return _solution(engine)


class Optimum(NamedTuple):
    """The best x, what one more unit of each row's binding side would gain, and what one more unit
    of each x would."""

    x: Floats
    duals: Floats
    reduced: Floats


class Staged:
    """A small continuous programme that has a second objective: its answer begins at the first's.

    Both raise ArithmeticError where there is no optimum. To make an engine takes as long as some
    answers do, so that those that have given `then` are kept for the next; no two have one at once.
    """

    _idle: ClassVar[list[Any]] = []

    def __init__(self, posed: Model) -> None:
        try:
            engine = self._idle.pop()
        except IndexError:
            engine = _prepared(_PLAIN)
        engine.setOptionValue("simplex_strategy", _DUAL)
        self._engine = _given(engine, posed)

    def maximise(self) -> Optimum:
        """The optimum."""
        engine = self._engine
        engine.run()
        if engine.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise ArithmeticError(engine.modelStatusToString(engine.getModelStatus()))
        found = engine.getSolution()
        parts = (np.array(part) for part in (found.col_value, found.row_dual, found.col_dual))
        x, duals, reduced = parts
        return Optimum(x, -duals, -reduced)

    def then(self, gain: Floats, column: int, value: float) -> Optimum:
        """That of another objective, where the x of `column` stays as it is."""
        engine = self._engine
        engine.changeColBounds(column, value, value)
        engine.changeColsCost(len(gain), np.arange(len(gain), dtype=np.int32), -gain)
        engine.setOptionValue("simplex_strategy", _PRIMAL)  # where it begins is feasible
        found = self.maximise()
        self._idle.append(engine)
        return found


class Growing:
    """A small continuous programme to which rows are added: each answer begins at the last one."""

    def __init__(self, posed: Model) -> None:
        self._posed, self._engine = posed, _engine(posed, _PLAIN)

    def add(self, row: Floats, most: float) -> None:
        """One more row: `row @ x <= most`."""
        posed = self._posed
        self._posed = posed._replace(
            rows=np.vstack([posed.rows, row]),
            least=np.append(posed.least, -np.inf),
            most=np.append(posed.most, most),
        )
        self._engine.addRow(-np.inf, most, len(row), np.arange(len(row), dtype=np.int32), row)

    def maximise(self) -> Solution:
        """The optimum; raises as `maximise` does."""
        self._engine.run()
        if self._engine.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            return _solution(self._engine)
        return maximise(self._posed)


def _solution(engine: Any) -> Solution:
    solution, info = engine.getSolution(), engine.getInfo()
    x, value = np.array(solution.col_value), -float(info.objective_function_value)
    work = max(info.simplex_iteration_count, 0) + max(info.ipm_iteration_count, 0)
    return Solution(x, value, value, -np.array(solution.row_dual), work)


def _explain(engine: Any, posed: Model, status: Any) -> None:
    """Say why there is no optimum: the rows or columns of HiGHS' ray, found without presolve."""
    kinds = highspy.HighsModelStatus
    if status not in _ANSWERS:
        raise ArithmeticError(f"HiGHS: {engine.modelStatusToString(status)}")
    engine = _engine(posed, {"presolve": "off", "solver": "simplex"})
    engine.run()
    if engine.getModelStatus() == kinds.kUnbounded:
        raise Unbounded(_ray(engine.getPrimalRay, len(posed.gain)))
    raise Infeasible(_ray(engine.getDualRay, len(posed.most)))


def _ray(asked: Callable[[], Any], size: int) -> Ints:
    found = asked()
    ray = np.asarray(found[-1], np.float64)
    if not found[1] or len(ray) != size:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.abs(ray) > 1e-9 * np.abs(ray).max(initial=0.0))


def maximise_whole(
    posed: Model,
    start: Floats,
    *,
    nodes: int = 10_000,
    gap: float = 1e-6,
    seconds: float = np.inf,
    plain: bool = False,
) -> Solution:
    """The best solution within `nodes` nodes or `gap`, never worse than the feasible `start`.

    `plain`: so small that looking at it first would take longer than it saves. `seconds` is for
    the edge only: with it the answer depends on the machine's speed. Raises Unbounded; Infeasible
    cannot be, for `start` is feasible.
    """
    engine = _engine(
        posed,
        {
            "mip_max_nodes": nodes,
            "mip_rel_gap": gap,
            "mip_feasibility_tolerance": _TOLERANCE,
            "time_limit": seconds,
            "presolve": "off" if plain else "choose",
        },
    )
    engine.run()
    if engine.getModelStatus() == highspy.HighsModelStatus.kUnbounded:
        raise Unbounded(np.zeros(0, np.int64))
    info, known = engine.getInfo(), float(posed.gain @ start)
    bound = -float(info.mip_dual_bound)
    x, value = start, known
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        found = np.array(engine.getSolution().col_value)
        if posed.integer is not None:
            found = np.where(posed.integer, np.round(found), found)
        if float(posed.gain @ found) > known:
            x, value = found, float(posed.gain @ found)
    return Solution(x, value, max(bound, value), np.zeros(0), int(info.mip_node_count))
