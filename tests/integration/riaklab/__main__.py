"""The lab by hand: `build`, and `up [HOSTS]` until Ctrl-C."""

from __future__ import annotations

import signal

from tests.integration.hostlab.by_hand import say, until_ended
from tests.integration.hostlab.docker import require_engine
from tests.integration.riaklab.images import build
from tests.integration.riaklab.running import running


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
    until_ended(main)
