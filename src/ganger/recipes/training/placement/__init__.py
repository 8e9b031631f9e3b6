"""Recipes that are about where jobs go, and what belongs to them alone."""
