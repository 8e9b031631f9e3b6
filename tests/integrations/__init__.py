"""Tests of searches from Python programs."""
