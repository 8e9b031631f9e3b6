"""Systems that decide about the links between nodes."""
