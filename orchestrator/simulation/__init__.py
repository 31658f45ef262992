"""A seeded, deterministic world behind the ports, with its own time, ground truth and faults."""
