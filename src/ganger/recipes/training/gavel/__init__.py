"""Gavel and its relatives (OSDI 2020), and what belongs to them alone."""
