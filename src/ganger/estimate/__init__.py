"""What may be believed about jobs: fits and models. Pure, seeded, single-threaded."""
