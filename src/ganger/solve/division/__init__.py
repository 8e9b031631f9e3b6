"""Division of time between jobs, by objective."""
