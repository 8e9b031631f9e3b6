"""The fast engine: a heap of future events, and the physics that decide when they happen."""
