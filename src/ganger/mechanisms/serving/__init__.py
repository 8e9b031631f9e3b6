"""Mechanisms of routers: queues, batching, dispatch, admission.

Choice among models is in `asking` and `choice`, the stages of pipelines in `pipeline`, which models
stay in memory in `residency`. `composed` puts them together. `continuous` batches token models step
by step, in the `turns` of tenants.
"""
