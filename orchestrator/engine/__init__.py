"""Pure decisions: no clock, no randomness, no world."""
