"""Fair recipes, and what belongs to them alone."""
