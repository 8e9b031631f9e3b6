"""MIG-Serving: which slices each device has, and which service each slice answers."""
