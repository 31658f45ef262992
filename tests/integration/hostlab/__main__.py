"""The lab by hand: `build [FLAVOUR...]` (those of `make test`), and `up FLAVOUR [NODES]` until Ctrl-C."""

from __future__ import annotations

import signal
import sys

from tests.integration.hostlab.docker import require_engine
from tests.integration.hostlab.flavours import FLAVOURS, find_flavour
from tests.integration.hostlab.images import build
from tests.integration.hostlab.reaching import SSH_USER
from tests.integration.hostlab.running import running
from tests.lab.errors import LabError


def say(line: str) -> None:
    """Tell how far it is."""
    print(f"lab: {line}", flush=True)  # noqa: T201  (a command's output)


def main(words: list[str]) -> int:
    """Do what the words say; the exit code."""
    match words:
        case ["build", *names]:
            require_engine()
            usual = [each for each in FLAVOURS if each.usual]
            for flavour in [find_flavour(name) for name in names] or usual:
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
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in a background job unless asked for
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # what is up was taken down
        sys.exit(130)
    except LabError as error:
        say(str(error))
        sys.exit(2)
