"""Mechanisms of routers: queues, batching, dispatch, admission."""
