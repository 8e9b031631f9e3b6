"""What the daemon says of jobs, tenants and itself."""
