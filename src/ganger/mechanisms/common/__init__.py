"""What several families need: caches, differences, drawing only what changes."""
