"""How a service is served now, from the settings of other servers."""
