"""Gymnasium environments over the simulator (extra `envs`): a program makes the decisions of a
game of `mechanisms/learning`, and gets what they cost."""

from ganger.envs.scheduling import PlacementEnv, QueueEnv, SchedulingEnv, SizingEnv

__all__ = ["PlacementEnv", "QueueEnv", "SchedulingEnv", "SizingEnv"]
