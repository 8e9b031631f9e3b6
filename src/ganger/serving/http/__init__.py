"""HTTP in front of a live plane: connections, endpoints, tensors on the wire."""
