"""Engines for tests: one that runs no process, and a wrapper that makes any engine a bad one."""
