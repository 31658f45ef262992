"""Runs, put together: what the command line, the demo, the rehearsal and programs in Python use alike."""
