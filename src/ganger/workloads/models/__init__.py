"""Models that services run: the models file, its checks, and what was measured of each model."""
