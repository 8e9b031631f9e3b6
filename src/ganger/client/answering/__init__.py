"""What the API answers about families of jobs, and about which job holds which GPU."""
