"""How many GPUs each job gets."""
