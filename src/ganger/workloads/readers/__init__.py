"""A module for each trace format."""
