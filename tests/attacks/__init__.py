"""What a stranger or a user may try against a machine that others share."""
