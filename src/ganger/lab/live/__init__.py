"""Runs of real processes beside simulated ones."""
