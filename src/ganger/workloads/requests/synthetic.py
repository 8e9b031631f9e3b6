"""Requests made up: arrivals by a process, models by popularity, sizes and inputs as asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.state.names import Names
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.requests.processes import BLOCK, Curve, Gaps, arrivals, gaps, stream

I64 = NDArray[np.int64]
LONGEST_SECONDS: Final = 3.2e8
"""No generated load lasts longer: ten years."""
_MOST_MODELS = 1_000_000
_MOST_TOKENS = 10_000_000


@dataclass(frozen=True)
class Mix:
    """What requests are, beside when they come.

    `models`: how many models, and `zipf`: the k-th most popular is asked for in proportion to 1 /
    k^zipf; `names`: what they are called (model-0, ... if empty). `tenants`: so many, alike (0:
    none). `slo`: the deadline of each request, in microseconds after its arrival (None: none).
    `items`: inputs a request. `prompt_tokens`, `output_tokens`: means, lognormal with coefficient
    of variation `tokens_cv` (0: not a language model). `inputs`: how many different inputs there
    are (0: not stated), drawn by `inputs_zipf`.
    """

    models: int = 1
    zipf: float = 0.0
    tenants: int = 0
    slo: int | None = None
    items: int = 1
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    tokens_cv: float = 1.0
    inputs: int = 0
    inputs_zipf: float = 0.0
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bounds = {
            "models": (1, _MOST_MODELS), "tenants": (0, 1_000_000), "items": (1, 1_000_000),
            "prompt_tokens": (0, _MOST_TOKENS), "output_tokens": (0, _MOST_TOKENS),
            "tokens_cv": (0, 100), "inputs": (0, 10_000_000), "zipf": (0, 10),
            "inputs_zipf": (0, 10),
        }  # fmt: skip
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise BadInput(
                    f"{value:g}", where=name.replace("_", "-"), mend=f"give {least:,} to {most:,}"
                )
        if self.names and not len(self.names) == len(set(self.names)) == self.models:
            raise BadInput(
                f"{', '.join(self.names)[:60]!r} are not {self.models} different names",
                where="models",
                mend="name each once",
            )
        if self.slo is not None and self.slo <= 0:
            raise BadInput("an SLO of 0 s", where="slo", mend="give a time above 0")


MIXED: Final = tuple(each.name for each in fields(Mix) if each.name not in ("slo", "names"))
"""Fields of `Mix` that are plain numbers."""


def generated(
    curve: Curve,
    *,
    seed: int = 0,
    duration: float | None = None,
    most: int | None = None,
    cv: float = 1.0,
    mix: Mix | None = None,
    name: str = "synthetic",
    source: str = "",
) -> Requests:
    """Requests whose load follows `curve`, for `duration` seconds or until there are `most`; the
    same for the same arguments. `cv`: coefficient of variation of the gaps where the load is level.
    Raises BadInput."""
    if duration is None and most is None:
        raise BadInput("it has no end", where="synth", mend="give a duration or a number")
    if duration is not None and not 0 < duration <= LONGEST_SECONDS:
        raise BadInput(f"{duration:g} s", where="duration", mend="give up to ten years")
    if most is not None and most < 1:
        raise BadInput(f"{most} requests", where="requests", mend="give at least 1")
    if seed < 0:
        raise BadInput(f"{seed}", where="seed", mend="give 0 or more")
    mix, until, spread = mix or Mix(), duration or LONGEST_SECONDS, gaps(cv)

    def produce(_: Requests) -> Iterator[Chunk]:
        left = most if most is not None else math.inf
        for found in _rows(curve, spread, seed, until, mix):
            yield found if len(found) <= left else found.take(slice(0, int(left)))
            left -= len(found)
            if left <= 0:
                return

    return Requests(
        produce,
        name=name,
        source=source or f"synthetic, seed {seed}",
        models=Names(mix.names) if mix.names else _numbered("model", mix.models),
        tenants=Names(["", *_numbered("tenant", mix.tenants)]),
    )


def _rows(curve: Curve, spread: Gaps, seed: int, until: float, mix: Mix) -> Iterator[Chunk]:
    """The requests block by block; every column has random numbers of its own."""
    model, tenant = (
        Zipf(mix.models, mix.zipf, seed, "models"),
        Zipf(mix.tenants, 0, seed, "tenants"),
    )
    prompt = _Tokens(mix.prompt_tokens, mix.tokens_cv, seed, "prompts")
    output = _Tokens(mix.output_tokens, mix.tokens_cv, seed, "outputs")
    key = Zipf(mix.inputs, mix.inputs_zipf, seed, "inputs")
    for at in arrivals(curve, spread, seed, until):
        n = len(at)
        yield Chunk(
            at,
            model.draw(n).astype(np.int32),
            deadline=None if mix.slo is None else at + mix.slo,
            tenant=(tenant.draw(n) + 1).astype(np.int32) if mix.tenants else None,
            items=np.full(n, mix.items, np.int32) if mix.items != 1 else None,
            prompt_tokens=prompt.draw(n) if mix.prompt_tokens else None,
            output_tokens=output.draw(n) if mix.output_tokens else None,
            input=key.draw(n) if mix.inputs else None,
        )


class Zipf:
    """Numbers below `values`, the k-th (from 1) in proportion to 1 / k^exponent, in blocks."""

    def __init__(self, values: int, exponent: float, seed: int, purpose: str) -> None:
        self.values, self.rng = values, stream(seed, purpose)
        self.edges = None
        if exponent and values > 1:
            edges = np.cumsum(np.arange(1, values + 1) ** -float(exponent))
            self.edges = edges / edges[-1]

    def draw(self, n: int) -> I64:
        """The next `n` of a block; the rest of the block is passed over."""
        if self.values <= 1:
            return np.zeros(n, np.int64)
        if self.edges is None:
            return self.rng.integers(0, self.values, BLOCK)[:n]
        found = np.searchsorted(self.edges, self.rng.random(BLOCK), side="right")
        return found[:n].astype(np.int64)


class _Tokens:
    """Lengths in tokens: lognormal, rounded, at least 1."""

    def __init__(self, mean: float, cv: float, seed: int, purpose: str) -> None:
        self.sigma = math.sqrt(math.log1p(cv * cv))
        self.mu = math.log(mean) - self.sigma**2 / 2 if mean else 0.0
        self.rng = stream(seed, purpose)

    def draw(self, n: int) -> NDArray[np.int32]:
        drawn = np.rint(self.rng.lognormal(self.mu, self.sigma, BLOCK)[:n])
        return np.clip(drawn, 1, _MOST_TOKENS).astype(np.int32)


def _numbered(prefix: str, count: int) -> Names[str]:
    digits = len(str(max(count - 1, 0)))
    return Names(f"{prefix}-{i:0{digits}d}" for i in range(count))
