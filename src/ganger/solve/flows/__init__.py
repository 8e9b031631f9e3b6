"""Flows that share links: max-min fair rates, of all at once, and of those that come and go."""
