"""Implementations of the longer commands, one module each, loaded only when the command is used."""
