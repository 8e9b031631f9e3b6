"""Searchers propose the configurations of trials."""
