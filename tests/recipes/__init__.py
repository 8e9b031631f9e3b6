"""Tests of the room `recipes`."""
