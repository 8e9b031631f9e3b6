"""Optimisation on plain arrays: arrays in, arrays out, nothing about jobs."""
