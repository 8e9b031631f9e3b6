"""Searches for hyper-parameters, simulated on curves."""
