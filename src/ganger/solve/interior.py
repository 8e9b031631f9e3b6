"""Programmes over cones from inside: where a path-following method ends among many best answers.

Mehrotra's predictor and corrector on the homogeneous embedding with Nesterov-Todd scaling, from
least squares, after equilibration, as conic solvers do (Domahidi, Chu and Boyd, "ECOS: An SOCP
solver for embedded systems", ECC 2013). Its answer depends on the way there; that is its use.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from ganger.solve.division.programme import Floats, dot

STEPS = 100
TOLERANCE = 1e-8
"""Of the residuals and the gap, at which to end."""
SMALLEST, LARGEST = 1e-6, 0.999
"""The least and the most of a step towards the edge."""
REGULAR, REFINED = 7e-8, 9
CLOSE = 5e-5
"""A gap that will do where numbers do not suffice for less."""
_J = np.array([1.0, -1.0, -1.0])


class Factored(Protocol):
    """[[0, G'], [G, -W^2]], factored."""

    def solve(self, wanted: Floats) -> Floats:
        """The solution for each column of right-hand sides: x, then z."""
        ...


class System(Protocol):
    """The rows G of a programme. Where many columns, or rows, are equal, one stands for all of
    them, and a weight says for how many: the path treats them alike."""

    of_rows: Floats
    """For how many rows each stands."""
    of_columns: Floats

    def times(self, x: Floats) -> Floats:
        """G x."""
        ...

    def back(self, z: Floats) -> Floats:
        """G' z."""
        ...

    def factored(self, scaling: Line | None) -> Factored:
        """With W^2 of `scaling`; None: with the identity."""
        ...


class _Point(NamedTuple):
    x: Floats
    s: Floats
    z: Floats
    tau: float
    kappa: float


def interior(cost: Floats, rows: Any, most: Floats, cones: int = 0) -> Floats:
    """The x with the least `cost @ x` for which `most - rows @ x` is nowhere below 0, from inside.

    The last `cones` triples of rows are second-order cones instead: the first is at least the
    length of the other two. Raises ArithmeticError if it does not get there.
    """
    scaled, by_row, by_column = _equilibrated(sparse.csc_array(rows), cones)
    return followed(_Rows(scaled), cost / by_column, most / by_row, cones) / by_column


def _equilibrated(rows: Any, cones: int) -> tuple[Any, Floats, Floats]:
    """Rows and columns with largest entries near 1, by three rounds of Ruiz' scaling; the rows of a
    cone alike."""
    by_row, by_column = np.ones(rows.shape[0]), np.ones(rows.shape[1])
    plain = rows.shape[0] - 3 * cones
    for _ in range(3):
        sizes = abs(rows)
        row, column = sizes.max(axis=1).toarray().ravel(), sizes.max(axis=0).toarray().ravel()
        row[plain:] = row[plain:].reshape(-1, 3).sum(axis=1).repeat(3)
        row, column = (np.where(part < 1e-6, 1.0, np.sqrt(part)) for part in (row, column))
        rows = sparse.csc_array(sparse.diags_array(1 / row) @ rows @ sparse.diags_array(1 / column))
        by_row, by_column = by_row * row, by_column * column
    return rows, by_row, by_column


class Line:
    """Nesterov and Todd's W, with W z = W^-1 s, where no row is of a cone."""

    def __init__(self, s: Floats, z: Floats) -> None:
        self.line: Floats = np.sqrt(s / z)
        self.twice: Floats = s / z

    def times(self, v: Floats) -> Floats:
        """W v."""
        return self.line * v

    def over(self, v: Floats) -> Floats:
        """W^-1 v."""
        return v / self.line

    def again(self, v: Floats) -> Floats:
        """W^2 v."""
        return self.twice * v

    def squared(self) -> Any:
        """W^2 as a matrix."""
        return sparse.diags_array(self.line**2)

    def product(self, u: Floats, v: Floats) -> Floats:
        """Jordan's u o v."""
        return u * v

    def divided(self, v: Floats, u: Floats) -> Floats:
        """The y with u o y = v."""
        return v / u


class _Scaling(Line):
    """The same of the cone that `s` and `z` are in."""

    def __init__(self, s: Floats, z: Floats, cones: int) -> None:
        self.plain = len(s) - 3 * cones
        super().__init__(s[: self.plain], z[: self.plain])
        a, b = (part[self.plain :].reshape(-1, 3) for part in (s, z))
        length_a, length_b = np.sqrt((a * a) @ _J), np.sqrt((b * b) @ _J)
        a, b = a / length_a[:, None], b / length_b[:, None]
        middle = (a + b * _J) / np.sqrt(2 + 2 * (a * b).sum(axis=1))[:, None]
        tail = middle[:, 1:]
        self.blocks: NDArray[np.float64] = np.zeros((cones, 3, 3))
        self.blocks[:, 0, :] = middle
        self.blocks[:, 1:, 0] = tail
        self.blocks[:, 1:, 1:] = (
            np.eye(2) + tail[:, :, None] * tail[:, None, :] / (1 + middle[:, 0])[:, None, None]
        )
        self.blocks *= np.sqrt(length_a / length_b)[:, None, None]

    def times(self, v: Floats) -> Floats:
        """W v."""
        curved = np.einsum("cij,cj->ci", self.blocks, v[self.plain :].reshape(-1, 3))
        return np.concatenate([self.line * v[: self.plain], curved.ravel()])

    def over(self, v: Floats) -> Floats:
        """W^-1 v."""
        curved = np.linalg.solve(self.blocks, v[self.plain :].reshape(-1, 3, 1))
        return np.concatenate([v[: self.plain] / self.line, curved.ravel()])

    def squared(self) -> Any:
        """W^2 as a matrix."""
        return sparse.block_diag([super().squared(), *(self.blocks @ self.blocks)])

    def again(self, v: Floats) -> Floats:
        """W^2 v."""
        return self.times(self.times(v))

    def product(self, u: Floats, v: Floats) -> Floats:
        """Jordan's u o v."""
        a, b = u[self.plain :].reshape(-1, 3), v[self.plain :].reshape(-1, 3)
        curved = a[:, :1] * b + b[:, :1] * a
        curved[:, 0] = (a * b).sum(axis=1)
        return np.concatenate([u[: self.plain] * v[: self.plain], curved.ravel()])

    def divided(self, v: Floats, u: Floats) -> Floats:
        """The y with u o y = v."""
        a = u[self.plain :].reshape(-1, 3)
        arrow = np.zeros((len(a), 3, 3))
        arrow[:, range(3), range(3)] = a[:, :1]
        arrow[:, 0, 1:] = arrow[:, 1:, 0] = a[:, 1:]
        curved = np.linalg.solve(arrow, v[self.plain :].reshape(-1, 3, 1))
        return np.concatenate([v[: self.plain] / u[: self.plain], curved.ravel()])


def _unit(size: int, cones: int) -> Floats:
    """The middle of the cone."""
    unit = np.ones(size)
    unit[size - 3 * cones :].reshape(-1, 3)[:, 1:] = 0.0
    return unit


class _Factors:
    """Factored with a slight regularisation that refinement takes back."""

    def __init__(self, rows: Any, squared: Any) -> None:
        m, n = rows.shape
        regular = sparse.diags_array(REGULAR * np.concatenate([np.ones(n), -np.ones(m)]))
        nothing = sparse.csc_array((n, n))
        self._matrix = sparse.block_array([[nothing, rows.T], [rows, -squared]], format="csc")
        self._factors = splu(sparse.csc_array(self._matrix + regular))

    def solve(self, wanted: Floats) -> Floats:
        """The solution for each column of right-hand sides."""
        return np.stack([self._one(column) for column in wanted.T], axis=1)

    def _one(self, wanted: Floats) -> Floats:
        wanted = np.ascontiguousarray(wanted)
        found: Floats = self._factors.solve(wanted)
        for _ in range(REFINED):
            found = found + self._factors.solve(wanted - self._matrix @ found)
        return found


class _Rows:
    """Any sparse rows, each for itself."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self.of_rows, self.of_columns = (np.ones(size) for size in rows.shape)

    def times(self, x: Floats) -> Floats:
        """G x."""
        return np.asarray(self._rows @ x)

    def back(self, z: Floats) -> Floats:
        """G' z."""
        return np.asarray(self._rows.T @ z)

    def factored(self, scaling: Line | None) -> Factored:
        """By sparse elimination."""
        same = sparse.eye_array(len(self.of_rows))
        return _Factors(self._rows, same if scaling is None else scaling.squared())


class _Aim(NamedTuple):
    """What is followed. `due` and `full` are `cost` and `most` times what they count for."""

    system: System
    cost: Floats
    most: Floats
    cones: int
    due: Floats
    full: Floats


def _begun(aim: _Aim) -> _Point:
    n, factored = len(aim.cost), aim.system.factored(None)
    wanted = np.zeros((n + len(aim.most), 2))
    wanted[:n, 1], wanted[n:, 0] = -aim.cost, aim.most
    first, second = factored.solve(wanted).T
    s, z = (_shifted(part, aim.cones) for part in (-first[n:], second[n:]))
    return _Point(first[:n], s, z, 1.0, 1.0)


def _shifted(part: Floats, cones: int) -> Floats:
    """Moved along the middle until it is inside."""
    plain = len(part) - 3 * cones
    curved = part[plain:].reshape(-1, 3)
    lengths = np.sqrt((curved[:, 1:] ** 2).sum(axis=1))
    least = min(part[:plain].min(initial=np.inf), (curved[:, 0] - lengths).min(initial=np.inf))
    return part + (0.01 if least > 0 else 1.0 - least) * _unit(len(part), cones)


def followed(system: System, cost: Floats, most: Floats, cones: int = 0) -> Floats:
    """Where the path ends: `interior` on a system that is scaled well."""
    aim = _Aim(system, cost, most, cones, cost * system.of_columns, most * system.of_rows)
    at, degree = _begun(aim), float(system.of_rows.sum()) - 2 * cones
    sizes = (max(1.0, _length(cost, system.of_columns)), max(1.0, _length(most, system.of_rows)))
    for _ in range(STEPS):
        turn = _Turn(aim, at)
        x, s, z, tau, kappa = at
        gap = dot(s * system.of_rows, z)
        value, near = dot(aim.due, x) / tau, gap / tau**2
        fits = (
            _length(turn.off_x, system.of_columns) < TOLERANCE * tau * sizes[0]
            and _length(turn.off_z, system.of_rows) < TOLERANCE * tau * sizes[1]
        )
        if fits and (near < TOLERANCE or near < TOLERANCE * abs(value)):
            return x / tau
        try:
            ahead = turn.next((gap + kappa * tau) / (degree + 1))
        except (RuntimeError, ArithmeticError, np.linalg.LinAlgError):  # singular
            ahead = None
        if ahead is None or not _inside(ahead, cones):
            if near < CLOSE:
                return x / tau
            break
        at = ahead
    raise ArithmeticError("the path from inside does not end")


def _length(v: Floats, weight: Floats) -> float:
    return float(np.sqrt(dot(v * weight, v)))


def _inside(at: _Point, cones: int) -> bool:
    for part in (at.s, at.z):
        plain = len(part) - 3 * cones
        if not (part[:plain] > 0).all():
            return False
        curved = part[plain:].reshape(-1, 3)
        if cones and not ((curved * curved) @ _J > 0).all():
            return False
    return at.tau > 0 and at.kappa > 0


class _Turn:
    """One predictor and corrector."""

    def __init__(self, aim: _Aim, at: _Point) -> None:
        self.aim, self.at = aim, at
        self.off_x = aim.system.back(at.z) + aim.cost * at.tau
        self.off_z = at.s + aim.system.times(at.x) - aim.most * at.tau

    def next(self, mu: float) -> _Point:
        """Where it leads."""
        at, aim = self.at, self.aim
        scaling = _Scaling(at.s, at.z, aim.cones) if aim.cones else Line(at.s, at.z)
        self.scaling, self.factored = scaling, aim.system.factored(scaling)
        middle = scaling.times(at.z)
        full = scaling.product(middle, middle)
        move = -scaling.times(scaling.divided(full, middle))
        wanted = [np.concatenate([-aim.cost, aim.most]), self._asked(1.0, move)]
        self.along, own = self.factored.solve(np.stack(wanted, axis=1)).T
        guess = self._towards(1.0, -at.kappa * at.tau, move, own)
        centring = min(max((1 - self._far(guess)) ** 3, 1e-4), 1.0)
        goal = centring * mu
        crossed = scaling.product(scaling.over(guess.s), scaling.times(guess.z))
        unit = _unit(len(at.s), aim.cones)
        kappa = goal - at.kappa * at.tau - guess.kappa * guess.tau
        move = -scaling.times(scaling.divided(full + crossed - goal * unit, middle))
        own = self.factored.solve(self._asked(1 - centring, move)[:, None])[:, 0]
        step = self._towards(1 - centring, kappa, move, own)
        far = 0.99 * self._far(step)
        return _Point(
            at.x + far * step.x,
            at.s + far * step.s,
            at.z + far * step.z,
            at.tau + far * step.tau,
            at.kappa + far * step.kappa,
        )

    def _asked(self, keep: float, move: Floats) -> Floats:
        return np.concatenate([-keep * self.off_x, -keep * self.off_z - move])

    def _towards(self, keep: float, goal_kappa: float, move: Floats, own: Floats) -> _Point:
        at, aim, along, n = self.at, self.aim, self.along, len(self.aim.cost)
        off_tau = at.kappa + dot(aim.due, at.x) + dot(aim.full, at.z)
        top = -keep * off_tau - goal_kappa / at.tau - dot(aim.due, own[:n]) - dot(aim.full, own[n:])
        both = dot(aim.due, along[:n]) + dot(aim.full, along[n:]) - at.kappa / at.tau
        dt = top / both
        step = own + dt * along
        ds = move - self.scaling.again(step[n:])
        return _Point(step[:n], ds, step[n:], dt, (goal_kappa - at.kappa * dt) / at.tau)

    def _far(self, step: _Point) -> float:
        """How far one can go before the edge."""
        at, plain = self.at, len(self.at.s) - 3 * self.aim.cones
        worst = max(-step.tau / at.tau, -step.kappa / at.kappa)
        for was, change in ((at.s, step.s), (at.z, step.z)):
            worst = max(worst, float((-change[:plain] / was[:plain]).max(initial=0.0)))
            if self.aim.cones:
                a, d = was[plain:].reshape(-1, 3), change[plain:].reshape(-1, 3)
                worst = max(worst, float(_edge(a, d).max(initial=0.0)))
        return min(max(1 / worst if worst > 0 else 1.0, SMALLEST), LARGEST)


def _edge(a: Floats, d: Floats) -> Floats:
    """One over the steps along `d` at which `a` leaves its cones; 0 for never."""
    # The largest root v of (v a + d)' J (v a + d) = 0, where v is one over the step.
    square, cross, rest = (a * a) @ _J, (a * d) @ _J, (d * d) @ _J
    root = np.sqrt(np.maximum(cross**2 - square * rest, 0.0))
    found: Floats = np.maximum((-cross + root) / square, 0.0)
    return found
