"""Tests of the models file."""
