"""Recipes for deadlines, and what belongs to them alone."""
