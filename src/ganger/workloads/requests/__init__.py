"""Requests that services answer: logs of many formats, generators, statistics, and a writer."""
