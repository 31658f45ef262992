"""The report of a run and the page of past runs, made from public records alone.

It reads the JSON of `--output json`, as the state keeps it, and imports nothing of the engine or the model: a
change there cannot break the pages of runs that were recorded before it.
"""
