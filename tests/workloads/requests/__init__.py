"""Tests of requests as files and as processes."""
