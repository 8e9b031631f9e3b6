"""What a search for hyper-parameters is made of: the space, its points, and the searcher that
proposes them."""
