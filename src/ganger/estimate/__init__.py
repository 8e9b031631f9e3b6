"""What may be believed about jobs: oracles, fits and models. Pure, seeded, single-threaded."""
