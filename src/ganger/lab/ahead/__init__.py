"""Looking ahead from the present state."""
