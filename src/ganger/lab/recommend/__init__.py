"""Which recipe to take."""
