"""How gates are asked: one module a kind, and the port that asks all of them at once."""
