"""Recipes that rent the machines that their jobs run on."""
