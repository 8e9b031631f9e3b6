"""Tests of the room `workloads`."""
