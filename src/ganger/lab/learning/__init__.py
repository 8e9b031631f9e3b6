"""Policies that are learned: runs that stop at choices, training, and what was gained by it."""
