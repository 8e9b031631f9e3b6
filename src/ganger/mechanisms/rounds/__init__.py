"""Rounds, and the programmes that divide the time between jobs."""
