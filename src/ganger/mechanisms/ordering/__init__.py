"""Which job goes first, and how the queue is walked."""
