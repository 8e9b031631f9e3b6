"""The engine over a Slurm cluster: one Slurm job per attempt, bound late. See docs/slurm.md.

It is the local engine's `attempts` over `fleet`. Inside a Slurm job `leader` and `node_share` run
the same supervisor as on other machines.
"""
