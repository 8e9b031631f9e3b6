"""What sharing leaves of speeds, and what jobs and models use of GPUs."""
