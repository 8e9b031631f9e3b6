"""Recipes that share GPUs, and what belongs to them alone."""
