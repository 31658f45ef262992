"""How a Riak cluster is read: its command's text, and HTTP. 1.4 to 3.2."""
