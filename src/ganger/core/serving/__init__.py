"""Serving: what a router sees (requests, lanes, stores) and what it can order, per batch."""
