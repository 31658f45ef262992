"""Reads a host for a diagnosis: the script of a reading, and the parsing of answers and recorded texts."""
