"""Where a job goes."""
