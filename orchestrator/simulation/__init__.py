"""A seeded, deterministic world behind the ports: its own time, its ground truth, its faults."""
