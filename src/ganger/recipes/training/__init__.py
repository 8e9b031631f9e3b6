"""Schedulers of training jobs."""
