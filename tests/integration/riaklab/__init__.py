"""Hosts with the test double of Riak: containers with systemd and sshd, `/usr/sbin/riak` among them.

`python -m tests.integration.riaklab build` makes the image; `up [HOSTS]` runs hosts until Ctrl-C.
"""
