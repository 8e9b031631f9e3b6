"""The `ganger` command: the only place that parses arguments and prints."""
