"""The connections of a run, by the way that the settings of a host name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from orchestrator.hosts.connection import HostConnection, Trouble, Unreachable
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.connections.openssh import OpensshHosts
from orchestrator.hosts.connections.sessions import LinkError
from orchestrator.hosts.connections.ssh import SshHosts
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.reading import Seconds


class Connections:
    """Makes connections when they are first needed and keeps them. Thread-safe.

    Args:
        clock: monotonic seconds.
        wait: waits between attempts to connect; None = a wait that `close` interrupts.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], Seconds] = time.monotonic,
        wait: Callable[[Seconds], object] | None = None,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ssh = SshHosts(clock=clock, wait=wait)
        self._openssh = OpensshHosts(clock=clock, wait=wait)
        self._closed = False

    def to(self, settings: HostSettings) -> HostConnection | Unreachable:
        """The connection to a node's host; nothing is sent until it is used."""
        if settings.connect is Connect.LOCAL:
            return LocalConnection(settings.environment, clock=self._clock)
        with self._lock:
            if self._closed:
                return Unreachable(trouble=Trouble.CLOSED, reason="the connections of this run are closed")
            try:
                hosts = self._openssh if settings.connect is Connect.OPENSSH else self._ssh
                return hosts.to(settings)
            except LinkError as error:
                return error.unreachable

    def here(self) -> HostConnection:
        """The connection to this machine."""
        return LocalConnection(clock=self._clock)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._closed = True
        self._ssh.close()
        self._openssh.close()
