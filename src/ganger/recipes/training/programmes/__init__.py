"""Recipes that solve a programme, and what belongs to them alone."""
