"""Replica splicing: a job whose workers are more than its GPUs goes on with all of them, several on
a GPU in turn (Singularity, 2022).

The world size stays what it was, so that nothing changes for the training. Replicas on a GPU share
parameters and the state of the optimizer. In each step every GPU computes for its replicas one
after another and changes from one to the next, which is what splicing costs beside the GPUs.

The simulator takes what is true from here, and recipes what they believe.
"""

from __future__ import annotations


def turns(world: int, gpus: int) -> int:
    """Replicas of a job of `world` workers on the fullest of `gpus` GPUs."""
    return -(-world // gpus)


def spliced(world: int, gpus: int, overhead: float) -> float:
    """What is left of the speed on `world` GPUs. `overhead`: the part of a step that each change
    from one replica to another takes."""
    replicas = turns(world, gpus)
    return 1.0 / (replicas + overhead * (replicas - 1))


def even_sizes(world: int, least: int) -> tuple[int, ...]:
    """The numbers of GPUs, from `least` on, ascending, on which a job of `world` workers may be so
    that all GPUs have as many replicas."""
    return tuple(gpus for gpus in range(max(least, 1), world + 1) if world % gpus == 0)
