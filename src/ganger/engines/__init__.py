"""Live engines: they make a plan true on real machines. Linux only."""
