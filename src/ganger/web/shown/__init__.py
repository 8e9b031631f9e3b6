"""How answers of the daemon look: the map, a job's life, outputs, times and reasons in words, small
pictures."""
