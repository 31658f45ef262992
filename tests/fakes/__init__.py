"""Fakes of ports that several suites share."""
