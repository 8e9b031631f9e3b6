"""Who holds what, what is free, and where a shape fits."""
