"""The lab by hand: `build`, and `up [HOSTS]` until Ctrl-C."""

from __future__ import annotations

import signal
import sys

from orchestrator.lab.errors import LabError
from tests.integration.hostlab.docker import require_engine
from tests.integration.riaklab.images import build
from tests.integration.riaklab.running import running


def say(line: str) -> None:
    """Tell how far it is."""
    print(f"lab: {line}", flush=True)  # noqa: T201  (a command's output)


def main(words: list[str]) -> int:
    """Do what the words say; the exit code."""
    match words:
        case ["build"]:
            require_engine()
            say(f"the image is {build(say)}")
        case ["up", *rest]:
            with running(hosts=int(rest[0]) if rest else 5, formed=True, progress=say) as lab:
                for host in lab.hosts:
                    say(f"{host.name} {host.address}, HTTP at {lab.endpoint(host.name)}")
                say(f"ssh -i {lab.identity} -o UserKnownHostsFile={lab.known_hosts} deploy@…")
                say("Ctrl-C takes it down")
                signal.pause()
        case _:
            say("build | up [HOSTS]")
            return 2
    return 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in a background job unless asked for
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except LabError as error:
        say(str(error))
        sys.exit(2)
