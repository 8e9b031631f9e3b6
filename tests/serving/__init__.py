"""The request plane: routers, and the loop that drives them."""
