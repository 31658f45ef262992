"""Runs `orchestrate` as a task of Apache Airflow: deferrable, cancellable, never twice beside itself.

It knows the program by its command line alone: JSON lines, exit codes, `stop`. So Airflow may live in an
environment of its own and the program in another. `operators` and `triggers` need Airflow 3.3 or later, from
which on a trigger is told when a person kills its task; all else here needs Python's standard library.
"""
