"""Decisions as a row of choices, which a net or a program can learn to make."""
