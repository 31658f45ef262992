"""From the state of a run to what is shown."""
