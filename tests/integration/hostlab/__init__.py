"""Real hosts for tests: containers with systemd or sysvinit, sshd and a search node, reached as operators do.

``python -m tests.integration.hostlab`` does by hand what the fixtures do: `build [FLAVOUR...]` makes images,
`up FLAVOUR [NODES]` runs a cluster until Ctrl-C.
"""
