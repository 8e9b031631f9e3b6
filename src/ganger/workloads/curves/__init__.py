"""Curve tables: what trials of a search report, epoch by epoch, and how long that takes."""
