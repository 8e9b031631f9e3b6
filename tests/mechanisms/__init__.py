"""Tests of the room `mechanisms`."""
