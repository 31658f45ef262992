"""A cluster file with one endpoint, a TCP balancer; the addresses that the nodes publish lead nowhere."""

from __future__ import annotations

import contextlib
import itertools
import socket
import socketserver
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import pytest

from tests.integration.killing import KILLED, assert_restarted_once, prepare
from tests.integration.secured import SECURED

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="nodes")]

CLUSTER = "9.1.0"
NOBODY = "9"
"""The discard port: no node listens there."""
CHUNK_BYTES = 1 << 16


class Balancer:
    """Passes each new connection on to the next node that takes it. Use as a context manager.

    Args:
        ports: of the nodes, on this machine.

    Attributes:
        port: where it listens.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        turns = itertools.count()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                first = next(turns)
                for number in range(len(ports)):
                    with contextlib.suppress(OSError):
                        node = socket.create_connection(("127.0.0.1", ports[(first + number) % len(ports)]))
                        break
                else:
                    return  # as a balancer without a node that answers: the connection is closed
                with node:
                    back = threading.Thread(target=_passed, args=(node, self.request), daemon=True)
                    back.start()
                    _passed(self.request, node)
                    back.join()

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _passed(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes, and the end of it."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK_BYTES):
            target.sendall(chunk)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("strategy", ["node", "zone"])
def test_behind_one_balancer_a_killed_restart_is_resumed(
    process_cluster: ProcessCluster, bastion_of: BastionOf, strategy: str
) -> None:
    lab = process_cluster(CLUSTER, security=SECURED, settings={"http.publish_port": NOBODY})
    before = prepare(lab)
    with Balancer([urlsplit(each).port or 0 for each in lab.endpoints]) as balancer:
        endpoint = f"https://localhost:{balancer.port}"
        bastion = bastion_of(lab, strategy=strategy, document={"endpoints": [endpoint]})
        assert bastion.restart(at=" stopped") == KILLED, bastion.story()
        assert bastion.orchestrate("resume", "--yes") == 0, bastion.story()
    assert_restarted_once(lab, before, bastion.story())
