"""Service managers, one module each: the command lines that it takes, and how its answers are read. Pure."""
