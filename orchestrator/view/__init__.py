"""Output of a run's state."""
