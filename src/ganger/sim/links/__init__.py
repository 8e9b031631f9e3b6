"""Links between nodes that jobs share: how fast transfers go, step by step or in the mean."""
