"""Requests simulated: fleets, runs of routers, and what became of the requests."""
