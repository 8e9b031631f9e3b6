"""The Open Inference Protocol v2 over gRPC: its messages, and the service that answers them."""
