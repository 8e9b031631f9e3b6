"""Nodes switched on and off."""
