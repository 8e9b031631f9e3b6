"""The daemon over HTTP: connections, routes, endpoints."""
