"""One module a tunable: each reads facts and names changes, and none acts."""
