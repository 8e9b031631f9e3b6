"""Token models: what a step takes, and what a lane keeps of sequences. Times: microseconds.

A step is one pass through a model. Each sequence in it gets some of the tokens that are known of it
computed (the prompt, then what it has put out); one whose last known token is computed puts out the
next. The keys and values of tokens that were computed stay in the cache of the lane.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct


class Cached(Struct):
    """What a lane keeps of a task: so many of its tokens have been computed, of `each` bytes."""

    lane: int
    tokens: int
    each: int


class Line(NamedTuple):
    """Steps in which every sequence gets its next token, for one number of sequences: `start` +
    `context` for each token that is in the cache; `base` is the part that no sequence adds to."""

    start: float
    context: float
    base: float


class Times(Struct, frozen=True):
    """What steps take on one type of lane.

    `prefill`: base, for each token, for each unit by which the sum of squared lengths grows.
    `decode`: rows of largest batch, base, for each sequence, for each token in the cache. Instead
    tables: tokens and microseconds, sequences and microseconds, linear between points and beyond.
    """

    prefill: tuple[float, float, float] = (0.0, 0.0, 0.0)
    decode: tuple[tuple[float, float, float, float], ...] = ()
    prefill_table: tuple[tuple[int, ...], tuple[float, ...]] | None = None
    decode_table: tuple[tuple[int, ...], tuple[float, ...]] | None = None

    def line(self, sequences: int) -> Line:
        """Of so many sequences."""
        if self.decode_table is not None:
            return Line(_read(self.decode_table, sequences), 0.0, self.decode_table[1][0])
        for largest, base, each, context in self.decode:
            if sequences <= largest:
                return Line(base + each * sequences, context, base)
        raise ValueError("the last row is for all batches that are larger")

    def micros(self, tokens: int, squares: int, sequences: int, context: int) -> float:
        """A step that reads `tokens` of prompts, by which the sum of their squared lengths grows by
        `squares`, and gives `sequences` their next token, which have `context` tokens in the cache.
        A step that does both is one pass: of the two bases the smaller is not paid."""
        if not tokens:
            line = self.line(sequences)
            return line.start + line.context * context
        if self.prefill_table is not None:
            base, reads = self.prefill_table[1][0], _read(self.prefill_table, tokens)
        else:
            base, each, squared = self.prefill
            reads = base + each * tokens + squared * squares
        if not sequences:
            return reads
        line = self.line(sequences)
        return reads + line.start + line.context * context - min(base, line.base)

    def whole(self, prompts: Sequence[int], longest: int) -> float:
        """Prompts read at once, then the steps until all have outputs of `longest` tokens."""
        squares = sum(length * length for length in prompts)
        line, count, steps = self.line(len(prompts)), len(prompts), longest - 1
        context = steps * sum(prompts) + count * steps * (steps - 1) // 2
        return (
            self.micros(sum(prompts), squares, 0, 0) + steps * line.start + (line.context * context)
        )


def _read(table: tuple[tuple[int, ...], tuple[float, ...]], at: int) -> float:
    """Linear between points; the first below them, and beyond them on as between the last two."""
    x, y = table
    above = min(max(bisect_left(x, at), 1), len(x) - 1)
    if at <= x[0] or len(x) == 1:
        return y[0]
    part = (at - x[above - 1]) / (x[above] - x[above - 1])
    return y[above - 1] + part * (y[above] - y[above - 1])
