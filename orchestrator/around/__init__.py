"""What surrounds a run: readers of its public events. Beside it, and lost rather than waited for."""
