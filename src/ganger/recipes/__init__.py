"""Published schedulers as short compositions of mechanisms; the registry finds them by name."""
