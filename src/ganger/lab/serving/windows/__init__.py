"""Long logs by windows: those that are like others are read from a table of runs."""
