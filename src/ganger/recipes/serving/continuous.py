"""Continuous batching of token models, and shares of them for tenants."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.mechanisms.serving.continuous import Continuous
from ganger.mechanisms.serving.turns import Arrival, LeastServed
from ganger.recipes.registry import Amount, Count, Name, Paper, Positive, Within, recipe

Budget: TypeAlias = Annotated[int, Within(1, 1_000_000)]
"""Tokens of a step."""
VLLM = Paper(
    "Efficient Memory Management for Large Language Model Serving with PagedAttention",
    "Kwon et al.",
    "SOSP",
    2023,
    "throughput, latency",
)
VTC = Paper(
    "Fairness in Serving Large Language Models",
    "Sheng et al.",
    "OSDI",
    2024,
    "fairness, throughput",
)


@recipe(
    VLLM,
    name="serve.continuous-batching",
    reconstructed="the rule is that of vLLM's scheduler, version 1; the cache is counted in tokens,"
    " not in blocks of them, and prompts share no part of it",
)
def continuous_batching(
    max_num_batched_tokens: Budget = 2048, max_num_seqs: Count = 128, first: tuple[Name, ...] = ()
) -> Router:
    """The batch of a token model is put together anew for every step, as vLLM does.

    A step computes at most `max_num_batched_tokens`, for at most `max_num_seqs` sequences: first
    those that run, then those that wait by arrival, long prompts in pieces. When the cache is full
    the last is preempted and computed anew. Requests of the tenants in `first` go before all
    others, in this order, and are preempted last; they preempt nobody that runs only because
    `max_num_seqs` do. A request goes to the lane with the fewest. Other models get batches of what
    waits.
    """
    return Continuous(
        "serve.continuous-batching", max_num_batched_tokens, max_num_seqs, Arrival(first)
    )


@recipe(
    VTC,
    name="serve.fair",
    reconstructed="lanes have queues of their own, and counters are common to all; a request that"
    " was preempted is not counted again; other models count the time that their"
    " inputs take in the largest batch",
)
def fair(
    max_num_batched_tokens: Budget = 2048,
    max_num_seqs: Count = 128,
    read: Amount = 1.0,
    write: Positive = 2.0,
    weights: tuple[Name, ...] = (),
) -> Router:
    """Continuous batching in which the tenant that had least so far goes first.

    Every tenant has a counter: `read` for each token of a prompt, `write` for each token of an
    output, divided by the weight of the tenant (`weights=chat:2;nightly:0.5`, 1 for all others).
    Among tenants that wait the one with the least counter goes first. A tenant that comes back is
    lifted to the least that waits, so that it has no claim on what it left. So a tenant that floods
    costs the others no more than its share. Tenants of other models count device time.
    """
    return Continuous(
        "serve.fair",
        max_num_batched_tokens,
        max_num_seqs,
        LeastServed(read, write, dict(map(_weight, weights))),
    )


def _weight(text: str) -> tuple[str, float]:
    """A tenant and its weight. Raises BadInput."""
    name, _, given = text.rpartition(":")
    try:
        weight = float(given)
    except ValueError:
        weight = 0.0
    if not name or not 1e-6 <= weight <= 1e6:
        raise BadInput(
            f"{text!r} is not a tenant and a weight",
            where="serve.fair(weights)",
            mend="write like weights=chat:2;nightly:0.5",
        )
    return name, weight
