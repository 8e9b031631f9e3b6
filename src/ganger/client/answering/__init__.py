"""What the API answers about families of jobs."""
