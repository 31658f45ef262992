"""Runs `orchestrate` as a deferrable, cancellable Apache Airflow task, at most once at a time.

It uses only the program's command line: JSON lines, exit codes, `stop`. So Airflow and the program may be in
different environments. `operators` and `triggers` need Airflow 3.3 or later, the first version that notifies
a trigger when a person kills its task. The other modules need only Python's standard library.
"""
