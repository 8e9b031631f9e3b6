"""What each job holds, what is free, and where a shape fits."""
