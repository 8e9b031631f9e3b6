"""Recipes by which requests of several models share a device."""
