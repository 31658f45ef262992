"""Merging indices after a bulk load, before the first wave."""
