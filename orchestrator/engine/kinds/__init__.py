"""What is particular to a kind of cluster."""
