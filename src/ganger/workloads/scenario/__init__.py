"""Scenarios: what is asked for, on which devices, under which recipes, in one file."""
