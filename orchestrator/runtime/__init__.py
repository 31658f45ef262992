"""The imperative shell: loop, executor, journal, lease, signals."""
