"""The request plane simulated: arrivals, lanes, memory, and what becomes of every request."""
