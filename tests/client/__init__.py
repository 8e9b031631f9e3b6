"""What users and programs speak to the daemon with."""
