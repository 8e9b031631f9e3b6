"""What the README and the pages say can be typed."""
