"""Shares of tenants and jobs, leases, virtual clusters."""
