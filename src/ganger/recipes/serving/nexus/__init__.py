"""Nexus: sessions packed onto GPUs, and queries split into sessions."""
