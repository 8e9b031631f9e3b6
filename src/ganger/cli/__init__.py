"""`ganger`: the only place that parses arguments and prints."""
