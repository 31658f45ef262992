"""The next boot of a tuned host: one script, one unit, and the facts about them."""
