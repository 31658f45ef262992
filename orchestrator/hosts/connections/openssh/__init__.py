"""SSH by the operator's own `ssh`: everything that `ssh HOST` can do."""
