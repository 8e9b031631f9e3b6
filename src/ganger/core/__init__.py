"""The vocabulary and the kernel. No I/O, no clock, no global randomness."""
