"""Pure decisions: no clock, no randomness, no input or output."""
