"""Published effects of the recipes, in shape: set-up, their figure, ours, and whether it holds."""
