"""CPUs and host memory beside the GPUs."""
