"""Recipes by goodput: Pollux, Sia, and what belongs to them alone."""
