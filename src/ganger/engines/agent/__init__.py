"""The node agent: starts jobs on its machine, owns their processes, outlives the daemon."""
