"""One module for each tunable: each reads facts and names changes, and none makes them."""
