"""Commands for the daemon."""
