"""Runs of the simulator that stop wherever a choice is due."""
