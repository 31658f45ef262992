"""Ways to a machine: one package or module a transport, all with the protocol of `hosts/connection.py`."""
