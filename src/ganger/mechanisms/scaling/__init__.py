"""How many replicas a service has."""
