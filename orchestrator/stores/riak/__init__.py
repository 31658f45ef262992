"""Riak 2.0 to 3.2, by the output of its commands and by HTTP."""
