"""Decisions as a row of choices, which a program can learn to make."""
