"""The parts that papers are made of, one family a file. Recipes put them together."""
