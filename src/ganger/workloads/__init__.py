"""Formats in and out, and synthetic generators. What comes out is always a `Trace`."""
