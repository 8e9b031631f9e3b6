"""Nodes switched on and off; machines that are rented for jobs, and what they cost."""
