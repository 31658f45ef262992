"""The commands as they are typed: a module for each, or for a few that belong together; quick to load."""
