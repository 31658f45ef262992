"""Live pages of runs over HTTP: read-only, from what one reader of the state knows."""
