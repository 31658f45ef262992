"""A test double of Riak: the `riak` command and the HTTP endpoint as a recorded Riak 3.2.1 showed them.

It stores nothing. What it prints is written from `tests/data/riak/` and held to it, text by text, by
`tests/unit/test_riak_double.py`. Where the recordings are silent the code says so at the place, and a command
that was not recorded is refused with exit code 99 and a line that names the double.

ring.py       who owns which partition, and where fallbacks go
report.py     what one node tells of itself, and what a node knows of all
machine.py    one node's life: vnodes that start, fallbacks, hinted handoff
texts.py      what `riak admin` prints: ring, members, transfers
tables.py     what the table-drawing commands print: `cluster status`, `show`
commands.py   from words to a text and an exit code
stats.py      `/stats`
settings.py   riak.conf, vm.args and the double's own files
faults.py     what can be made to go wrong, while it runs
daemon.py     the process of a running node; peers.py: how nodes ask each other
short.py      the `riak` command, where the node answers; program.py: the rest of it
published.py  what nobody recorded, as the product's published source has it
pairs.py      files of `name = value`; lasting.py: how long commands take

It is standard library only: a host needs python3 and nothing else.
"""
