"""Experiments: recipe x trace x seed, their metrics, and reports on them."""
