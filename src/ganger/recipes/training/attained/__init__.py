"""Recipes by attained service, and what belongs to them alone."""
