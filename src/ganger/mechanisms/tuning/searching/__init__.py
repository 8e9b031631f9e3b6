"""Searchers: who proposes the configurations of trials."""
