"""Several jobs on one GPU."""
