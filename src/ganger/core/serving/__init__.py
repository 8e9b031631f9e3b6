"""Serving: what a router sees (requests, lanes, stores) and what it can order, per batch.

`world` is what it sees, `verbs` its orders, `router` what it is, `tokens` how long a step of a
token model takes, `memory` what it remembers, as bytes.
"""
