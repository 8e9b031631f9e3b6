"""The engine over a Slurm cluster: one Slurm job per attempt, bound late. See docs/slurm.md."""
