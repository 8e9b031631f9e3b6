"""Logs and counts of requests as others publish them, a file per format."""
