"""Commands about requests to models: what is read, compared and recommended."""
