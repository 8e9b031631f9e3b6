"""Which trials of a search go on, and how far."""
