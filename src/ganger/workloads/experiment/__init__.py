"""Experiment files: searches for hyper-parameters."""
