"""How services and all other jobs divide one cluster: nodes of their own, nodes on loan, or one
pool in which services go first."""
