"""Recipes for searches: how what a job of kind `tune` holds is divided among its trials."""
