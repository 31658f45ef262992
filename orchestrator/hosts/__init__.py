"""How a machine is reached and changed."""
