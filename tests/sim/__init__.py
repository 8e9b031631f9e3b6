"""Tests of the room `sim`."""
