"""The lab by hand: `build [FLAVOUR...]` (those of `make test`), and `up FLAVOUR [NODES]` until Ctrl-C."""

from __future__ import annotations

import signal

from tests.integration.hostlab.by_hand import say, until_ended
from tests.integration.hostlab.docker import require_engine
from tests.integration.hostlab.flavours import FLAVOURS, find_flavour
from tests.integration.hostlab.images import build
from tests.integration.hostlab.reaching import SSH_USER
from tests.integration.hostlab.running import running


def main(words: list[str]) -> int:
    """Do what the words say; the exit code."""
    match words:
        case ["build", *names]:
            require_engine()
            for flavour in [find_flavour(name) for name in names] or [
                each for each in FLAVOURS if each.usual
            ]:
                say(f"{flavour.name} is {build(flavour, progress=say)}")
        case ["up", name, *rest]:
            with running(find_flavour(name), nodes=int(rest[0]) if rest else 3, progress=say) as cluster:
                say(f"endpoints {' '.join(cluster.endpoints)}")
                say(f"ca {cluster.ca}; ssh -i {cluster.identity} -o UserKnownHostsFile={cluster.known_hosts}")
                say(f"in the cluster file: name lab, hosts.user {SSH_USER}")
                for access in (cluster.admin, cluster.orchestrator):
                    say(f"user {access.user} {access.password}")
                say("Ctrl-C takes it down")
                signal.pause()
        case _:
            say("build [FLAVOUR...] | up FLAVOUR [NODES]")
            return 2
    return 0


if __name__ == "__main__":
    until_ended(main)
