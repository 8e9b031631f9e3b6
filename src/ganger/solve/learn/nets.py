"""Small fully connected nets with exact gradients, choices among what is possible, and Adam.

A net maps the last axis of its input. So the same net scores one long observation, or each row of
a table alike, which makes it blind to the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
IMPOSSIBLE = -1e30
"""The score of what cannot be chosen."""


class Mlp:
    """Layers `x W + b`, with a hyperbolic tangent between two of them. `weights`: W and b of each
    layer in turn."""

    def __init__(self, weights: Sequence[Floats]) -> None:
        self.weights = [np.asarray(each, np.float64) for each in weights]

    @classmethod
    def drawn(cls, widths: Sequence[int], rng: np.random.Generator, last: float = 0.01) -> Mlp:
        """A net of layers of these `widths`, input first, with random weights of variance 1 over
        the layer's inputs. Those of the last layer are scaled by `last`, so that an untrained net
        prefers nothing by much."""
        weights = list[Floats]()
        for at, (inputs, outputs) in enumerate(pairwise(widths)):
            scale = last if at == len(widths) - 2 else 1.0
            weights += [
                rng.standard_normal((inputs, outputs)) * scale / inputs**0.5,
                np.zeros(outputs),
            ]
        return cls(weights)

    def __call__(self, x: Floats) -> Floats:
        """The output for `x`, whose last axis is the input."""
        weights = self.weights
        for at in range(0, len(weights) - 2, 2):
            x = np.tanh(x @ weights[at] + weights[at + 1])
        out: Floats = x @ weights[-2] + weights[-1]
        return out

    def layers(self, x: Floats) -> list[Floats]:
        """What enters each layer, and the output last: what `gradients` needs."""
        entering, weights = [x], self.weights
        for at in range(0, len(weights), 2):
            x = x @ weights[at] + weights[at + 1]
            if at < len(weights) - 2:
                x = np.tanh(x)
            entering.append(x)
        return entering

    def gradients(self, layers: Sequence[Floats], slope: Floats) -> list[Floats]:
        """The gradient of a loss by each of `weights`, where `slope` is its gradient by the
        output."""
        slopes = list[Floats]()
        for at in range(len(self.weights) - 2, -1, -2):
            entered = layers[at // 2]
            flat = slope.reshape(-1, slope.shape[-1])
            slopes += [flat.sum(axis=0), entered.reshape(-1, entered.shape[-1]).T @ flat]
            if at:
                slope = (slope @ self.weights[at].T) * (1.0 - entered * entered)
        return slopes[::-1]


def log_chances(scores: Floats, mask: Mask) -> Floats:
    """The logarithm of the chance of each choice of the last axis, in proportion to the exponential
    of its score; `IMPOSSIBLE` where `mask` is false. Each row needs a choice that is possible."""
    scores = np.where(mask, scores, IMPOSSIBLE)
    scores = scores - scores.max(axis=-1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return np.where(mask, logs, IMPOSSIBLE)


def best(scores: Floats, mask: Mask) -> int:
    """The possible choice with the highest score; of equals the first."""
    return int(np.where(mask, scores, IMPOSSIBLE).argmax())


def drawn(scores: Floats, mask: Mask, rng: np.random.Generator) -> int:
    """A choice drawn by its chance."""
    chances = np.exp(log_chances(scores, mask)).cumsum()
    at = int(chances.searchsorted(rng.random() * chances[-1], side="right"))
    return min(at, int(mask.nonzero()[0][-1]))


class Adam:
    """Steps down a gradient (Kingma and Ba, ICLR 2015). `rate`: about the length of a step;
    `longest`: a longer gradient is shortened to that."""

    def __init__(self, weights: Sequence[Floats], rate: float, longest: float = 1.0) -> None:
        self.rate, self.longest, self.steps = rate, longest, 0
        self._mean = [np.zeros_like(each) for each in weights]
        self._square = [np.zeros_like(each) for each in weights]

    def step(self, weights: Sequence[Floats], gradients: Sequence[Floats]) -> None:
        """Change `weights` in place."""
        self.steps += 1
        length = sum(float((each * each).sum()) for each in gradients) ** 0.5
        scale = min(1.0, self.longest / length) if length > 0.0 else 1.0
        rate = self.rate * (1.0 - 0.999**self.steps) ** 0.5 / (1.0 - 0.9**self.steps)
        for at, gradient in enumerate(gradients):
            mean, square = self._mean[at], self._square[at]
            mean += 0.1 * (scale * gradient - mean)
            square += 0.001 * ((scale * gradient) ** 2 - square)
            weights[at][...] -= rate * mean / (np.sqrt(square) + 1e-8)
