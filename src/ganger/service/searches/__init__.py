"""Searches on a daemon: how their trials come, and what these try."""
