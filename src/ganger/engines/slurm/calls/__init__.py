"""Slurm's commands, and what they answer."""
