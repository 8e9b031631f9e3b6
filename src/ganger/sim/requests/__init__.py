"""The request plane simulated: arrivals, lanes, memory, and what becomes of every request.

The loop is `plane`; the physics of batches and of token models, the `host` that makes replicas
lanes, residence and trouble stand beside it.
"""
