"""Riak: what belongs to this kind of cluster alone."""
