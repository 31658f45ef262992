"""How each kind of cluster is read and told."""
