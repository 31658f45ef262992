"""How a Riak cluster is read: its command's text, and HTTP. 2.0 to 3.2."""
