"""The journal: written, recovered from, copied."""
