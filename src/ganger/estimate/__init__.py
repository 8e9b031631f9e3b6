"""Oracles: what may be believed about jobs, learnt from what was observed."""
