"""What a user's program and the command line speak to the daemon with. Imports nothing heavy."""
