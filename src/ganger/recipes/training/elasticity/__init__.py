"""Recipes that resize jobs, and what belongs to them alone."""
