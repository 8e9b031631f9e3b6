"""Load on a server that runs: requests at the times of a log, and what became of them."""
