"""A trial that only prints: logistic regression by stochastic gradient descent on points of two
classes, made up from a seed. It needs no library and no GPU:

    ganger tune --space 'lr=log:1e-4..10,bs=1|8|64' --metric acc --max --epochs 9 --gpus 1 -- \\
        python examples/tuning/classify.py --lr {lr} --bs {bs}
"""

from __future__ import annotations

import argparse
import math
import random


def points(count: int, seed: int) -> list[tuple[list[float], int]]:
    """Points of two classes, apart in four of six dimensions, and a constant."""
    luck = random.Random(seed)
    made = []
    for _ in range(count):
        label = luck.randrange(2)
        centre = 0.5 if label else -0.5
        made.append(([luck.gauss(centre * (at < 4), 1.5) for at in range(6)] + [1.0], label))
    return made


def likely(weights: list[float], point: list[float]) -> float:
    """How likely the point is of class 1."""
    score = sum(weight * value for weight, value in zip(weights, point, strict=True))
    return 1 / (1 + math.exp(-max(min(score, 30.0), -30.0)))


def main() -> None:
    """Train, and print the accuracy on other points after each epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--bs", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=9)
    options = parser.parse_args()
    train, test = points(800, 1), points(400, 2)
    weights = [0.0] * len(train[0][0])
    for epoch in range(1, options.epochs + 1):
        for first in range(0, len(train), options.bs):
            batch = train[first : first + options.bs]
            errors = [likely(weights, point) - label for point, label in batch]
            for at in range(len(weights)):
                each = zip(errors, batch, strict=True)
                slope = sum(e * point[at] for e, (point, _) in each) / len(batch)
                weights[at] -= options.lr * slope
        right = sum((likely(weights, point) > 0.5) == label for point, label in test)
        print(f"epoch {epoch}: acc={right / len(test):.4f}", flush=True)


if __name__ == "__main__":
    main()
