"""Tests of the room `engines`."""
