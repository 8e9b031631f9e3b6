"""Recipes that ask several models, or one after the other, for one answer."""
