"""Read gates: one module for each kind, and the port that reads all of them in parallel."""
