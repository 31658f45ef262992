"""The hosts that a run reaches by the operator's own `ssh`, and the folder of their connections."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.daemons import in_parallel
from orchestrator.hosts.connection import Trouble
from orchestrator.hosts.connections.openssh.commands import begin
from orchestrator.hosts.connections.openssh.master import Master, SshTarget, configuration, end_master
from orchestrator.hosts.connections.sessions import LinkError, SessionConnection, Sessions
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.reading import Seconds

_LONGEST_FOLDER: Final = 40
"""The path of a socket has room for 107 characters; the longest here has 65 more than its folder's parent."""
_END_SECONDS: Final = 5.0
_UNSAFE: Final = frozenset('"\\\n\r\0')


class OpensshHosts:
    """Makes connections when they are first needed and keeps them. The caller locks.

    Args:
        clock: monotonic seconds.
        wait: waits between attempts to connect; None = a wait that `close` interrupts.
    """

    def __init__(
        self, *, clock: Callable[[], Seconds], wait: Callable[[Seconds], object] | None = None
    ) -> None:
        self._clock, self._wait = clock, wait
        self._folder: Path | None = None
        self._lock = threading.Lock()
        self._sessions: dict[SshTarget, Sessions[Master]] = {}
        self._configs: dict[str, Path] = {}
        self._jumps: dict[str, threading.Lock] = {}
        self._reached: set[str] = set()

    def to(self, settings: HostSettings) -> SessionConnection[Master]:
        """The connection to a host; nothing is sent until it is used.

        Raises:
            LinkError: the settings cannot be put into a configuration.
        """
        target = self._target(settings)
        if target not in self._sessions:
            folder, limits = self._own_folder(), settings.limits

            def make() -> Master:
                return Master(target, folder, limits, alone=self._alone, clock=self._clock, wait=self._wait)

            self._sessions[target] = Sessions(make, settings.address)
        within = settings.limits.connect + settings.limits.banner
        return SessionConnection(self._sessions[target], partial(begin, within=within, clock=self._clock))

    def close(self) -> None:
        """End all connections, those to jump hosts last, and remove the folder."""
        for sessions in self._sessions.values():
            sessions.close()
        if self._folder is None:
            return
        # A connection that ends by itself removes its socket at any moment.
        sockets = [path for path in self._folder.iterdir() if path.is_socket()]
        work = {str(path): partial(end_master, path, self._clock) for path in sockets}
        in_parallel(work, timeout=_END_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _target(self, settings: HostSettings) -> SshTarget:
        lines = [f"IdentityFile {_word(path)}" for path in settings.identities]
        if not settings.use_agent:
            lines.append("IdentityAgent none")
        if settings.known_hosts:
            files = " ".join(_word(path) for path in settings.known_hosts)
            lines += [f"UserKnownHostsFile {files}", "GlobalKnownHostsFile /dev/null", "VerifyHostKeyDNS no"]
        lines += [f'Include "{_safe(path)}"' for path in settings.ssh_config]
        text = configuration(tuple(lines), self._own_folder(), settings.limits)
        options = [f"User={settings.user}"] if settings.user is not None else []
        options += [f"Port={settings.port}"] if settings.port is not None else []
        return SshTarget(
            address=settings.address,
            config=self._config(text),
            own_known_hosts=bool(settings.known_hosts),
            options=tuple(word for option in options for word in ("-o", option)),
        )

    def _config(self, text: str) -> Path:
        if text not in self._configs:
            file = self._own_folder() / f"config-{len(self._configs)}"
            file.write_text(text, encoding="utf-8")
            self._configs[text] = file
        return self._configs[text]

    def _own_folder(self) -> Path:
        if self._folder is None:
            usual = tempfile.gettempdir()
            parent = usual if len(usual) <= _LONGEST_FOLDER else "/tmp"  # noqa: S108  (a folder of our own in it)
            self._folder = Path(tempfile.mkdtemp(prefix="orchestrate-ssh-", dir=parent))
        return self._folder

    @contextlib.contextmanager
    def _alone(self, jump: str) -> Iterator[None]:
        """Let the first connection by a jump host be made alone, so that the others share the one to it."""
        with self._lock:
            lock = self._jumps.setdefault(jump, threading.Lock())
        with contextlib.ExitStack() as held:
            if jump not in self._reached:
                held.enter_context(lock)
            if jump in self._reached:
                held.close()
            yield
            self._reached.add(jump)


def _word(path: str) -> str:
    """A path for a configuration of `ssh`, in quotes; a percent sign is not a token."""
    return f'"{_safe(path).replace("%", "%%")}"'


def _safe(path: str) -> str:
    if _UNSAFE & set(path):
        raise LinkError(Trouble.SETTINGS, f"{path!r} cannot be a path in a configuration of ssh: rename it")
    return path
