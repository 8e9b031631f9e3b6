"""One file for each page: it asks the daemon and fills a template."""
