"""Reading and commanding each kind of cluster."""
