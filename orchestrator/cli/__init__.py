"""The commands, one module each; the composition root."""
