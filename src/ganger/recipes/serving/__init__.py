"""Recipes for inference services."""
