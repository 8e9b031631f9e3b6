"""Speeds that were measured: profiles, throughput tables."""
