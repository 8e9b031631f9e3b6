"""Systems that serve requests: how they spread them, and how they batch token models."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from effects.common import Effect, effect, mean, shape, verdict
from effects.serving_common import GPU, in_time, most, run, stream
from ganger.core.state.names import Names
from ganger.workloads.models.profiles import Latency, Model, Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Chunk, Requests

_TOKENS: Final = Path(__file__).parents[2] / "examples" / "serving" / "tokens.toml"
_TALK: Final = {"prompt_tokens": 600.0, "output_tokens": 150.0}


@effect
def power_of_two() -> Effect:
    """Two choices against one, which is known in closed form."""
    one = np.array([1])
    times = Latency(GPU, 1.0, one, one * 0.010, one * 0.049)  # a coefficient of variation of 1
    models = Models({"m": Model("m", latency=(times,))}, {GPU: 0})

    def measure(seed: int) -> dict[str, float]:
        found = {
            name: run(
                stream(1440, 60, 10.0, "m", seed=seed),
                models,
                f"serve.{name}",
                f"{GPU}:16",
                seed=seed,
            )
            for name in ("power-of-two", "round-robin", "least-loaded")
        }
        took = {name: each.metrics["latency_mean_seconds"] or 0.0 for name, each in found.items()}
        ours = took.pop("power-of-two")
        return {"one choice": 0.100 / ours, **{name: each / ours for name, each in took.items()}}

    ours = mean(measure)
    return Effect(
        "serve.power-of-two",
        "Poisson, 16 lanes that are busy for 0.9 of the time, 10 ms with a coefficient of variation"
        " of 1; mean latency of others over its own; of one choice by Pollaczek and Khinchine",
        "3.8x (load 0.9, many lanes, exponential)",
        ours,
        verdict((ours["one choice"], 3.8)),
        "the least loaded of all lanes is quicker still",
        "it asks two lanes how much they have to do, least-loaded all of them",
    )


@effect
def continuous_batching() -> Effect:
    """Batches put together anew for every step, against whole requests."""
    models = read_models(_TOKENS)

    def measure(seed: int) -> dict[str, float]:
        def keeps(recipe: str, rate: float) -> bool:
            talk = stream(rate, 120, 20.0, "chat-13b", seed=seed, **_TALK)
            return in_time(run(talk, models, recipe, "A100:1")) >= 99

        rates = {
            name: most(lambda rate, name=name: keeps(name, rate), 0.1, 20, 8)  # type: ignore[misc]
            for name in ("serve.continuous-batching", "serve.triton", "serve.no-batch")
        }
        ours = rates.pop("serve.continuous-batching")
        return {name: ours / rate for name, rate in rates.items()}

    ours = mean(measure)
    return Effect(
        "serve.continuous-batching",
        "Poisson, a model of 13 billion parameters on one A100, prompts of 600 and outputs of 150"
        " tokens on average; requests a second of which 99 in 100 are answered in 20 s, over that"
        " of others",
        "2 to 4x over FasterTransformer and Orca at the same latency",
        ours,
        verdict((ours["serve.triton"], 2.0)),
        "the cache of `serve.triton` is not fragmented here, which is part of what was published",
    )


def _two_tenants(calm: float, flood: float, seed: int) -> Requests:
    """A tenant that asks `calm` times a second, and one that does `flood` times."""
    parts = [
        stream(rate, 120, 60.0, "chat-13b", seed=2 * seed + at, **_TALK).gather()
        for at, rate in enumerate((calm, flood))
        if rate
    ]
    arrival = np.concatenate([part.arrival for part in parts])
    order = np.argsort(arrival, kind="stable")
    prompts, outputs = (
        np.concatenate([part.columns[name] for part in parts])
        for name in ("prompt_tokens", "output_tokens")
    )
    tenant = np.concatenate([np.full(len(part), at, np.int32) for at, part in enumerate(parts)])
    rows = Chunk(
        arrival[order],
        np.zeros(len(order), np.int32),
        tenant=tenant[order],
        prompt_tokens=prompts[order],
        output_tokens=outputs[order],
    )
    return Requests.of(rows, Names(["chat-13b"]), Names(["calm", "flood"]))


@effect
def fair() -> Effect:
    """A tenant beside one that floods."""
    models = read_models(_TOKENS)

    def waits(recipe: str, flood: float, seed: int) -> float:
        found = run(_two_tenants(0.5, flood, seed), models, recipe, "A100:1")
        rows = {row["tenant"]: row for row in found.classes}
        times = rows["calm"] if rows else found.metrics
        return float(times["ttft_p99_seconds"] or 0.0)

    def measure(seed: int) -> dict[str, float]:
        alone = waits("serve.continuous-batching", 0.0, seed)
        return {
            "alone": alone,
            "beside a flood": waits("serve.fair", 12.0, seed),
            "beside a flood, by arrival": waits("serve.continuous-batching", 12.0, seed),
        }

    ours = mean(measure)
    return Effect(
        "serve.fair",
        "the same model; a tenant that asks every 2 s beside one that asks 12 times a second, which"
        " is more than the lane can do; 99th percentile of its time to the first token, in seconds",
        "a tenant below its share waits no longer, whatever another sends; by arrival it waits"
        " without bound",
        ours,
        shape(ours["beside a flood"] < 0.1 * ours["beside a flood, by arrival"]),
        "what runs is not preempted, so that it waits for a place in the batch",
    )
