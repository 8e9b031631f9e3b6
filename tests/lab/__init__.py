"""Tests of metrics, tables, charts and the report."""
