"""One shared connection of `ssh` to a host (ControlMaster), made again when it is gone.

`ssh` reads the operator's configuration for it alone; the sessions over it read none. So nothing of the
configuration reaches a command: no RemoteCommand, terminal, forwarding or variable. The connection is a
process in the background in a session of its own, which ends with the run. Without a session, as after a kill
of this program, it ends after `PERSIST_SECONDS`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator import variables
from orchestrator.hosts.connection import Captured, Trouble
from orchestrator.hosts.connections.attempts import with_attempts
from orchestrator.hosts.connections.jump import MAX_JUMPS, split_jump
from orchestrator.hosts.connections.openssh.messages import NO_MASTER, diagnosed
from orchestrator.hosts.connections.process import LocalProcess
from orchestrator.hosts.connections.sessions import LinkError
from orchestrator.hosts.settings import HostLimits
from orchestrator.model.reading import Seconds
from orchestrator.untrusted import UntrustedValue, account, address

PERSIST_SECONDS: Final = 90
_EXIT_SECONDS: Final = 3.0
_FORCED: Final = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "NoHostAuthenticationForLocalhost=no",
    "UpdateHostKeys=no",
    "PermitLocalCommand=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "Tunnel=no",
    "RequestTTY=no",
    "LogLevel=INFO",
)
"""They take precedence over the operator's configuration, for jump hosts too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """A host as `ssh` is to connect to it."""

    address: str  # what `ssh` gets as the host; its configuration may say more
    config: Path  # file with the options of the cluster file and the operator's configurations
    options: tuple[str, ...]  # of the cluster file for this host alone: user and port
    own_known_hosts: bool = False  # whether the cluster file names the known hosts: no command may add any


def configuration(lines: tuple[str, ...], folder: Path, limits: HostLimits) -> str:
    """The text of a configuration file that puts options before the operator's configurations.

    It is given to `ssh` by `-F`, which hands it on to the `ssh` of a jump host. Connections to jump hosts are
    shared by all hosts behind them.
    """
    shared = (
        "ControlMaster auto",
        f"ControlPath {folder}/jump-%C",
        f"ControlPersist {PERSIST_SECONDS}",
        f"ConnectTimeout {round(limits.connect + limits.banner)}",
        f"ServerAliveInterval {max(1, round(limits.keepalive))}",
        "ServerAliveCountMax 3",
    )
    forced = (option.replace("=", " ", 1) for option in _FORCED)
    return "\n".join((*forced, *shared, *lines, ""))


class Master:
    """The shared connection to one host.

    Args:
        target: the host.
        folder: for the socket; closed to other accounts.
        limits: of everything that waits.
        alone: a context in which a connection by this jump host is made, if need be alone.
        wait: waits this many seconds between attempts; None = an interruptible wait.
    """

    def __init__(
        self,
        target: SshTarget,
        folder: Path,
        limits: HostLimits,
        *,
        alone: Callable[[str], AbstractContextManager[None]],
        clock: Callable[[], Seconds] = time.monotonic,
        wait: Callable[[Seconds], object] | None = None,
    ) -> None:
        self.target = target
        self._folder, self._limits, self._alone, self._clock = folder, limits, alone, clock
        self._closing = threading.Event()
        self._wait = wait or self._closing.wait
        self._lock = threading.Lock()
        self._socket: Path | None = None
        self._retired: list[Path] = []

    @property
    def name(self) -> str:
        """The host, for messages."""
        return self.target.address

    def session(self, command: str) -> tuple[str, ...]:
        """The arguments of a session that runs a command over the connection, which is made if needed.

        Raises:
            LinkError: it cannot be made; nothing was sent.
        """
        gone = f"ProxyCommand=sh -c 'echo {NO_MASTER} >&2'"
        words = ("ssh", "-F", "/dev/null", "-S", str(self._ensure()), "-o", "ControlMaster=no", "-o", gone)
        return (*words, "-T", "-a", "-x", "-k", "--", self.target.address, command)

    def forget(self, argv: tuple[str, ...]) -> None:
        """The connection of this session is gone: the next session makes a new one."""
        with self._lock:
            if self._socket is not None and str(self._socket) in argv:
                self._drop()

    def retire(self, argv: tuple[str, ...]) -> None:
        """The same where it may only hang: sessions that run over it are left to their end."""
        with self._lock:
            if self._socket is not None and str(self._socket) in argv:
                self._retired.append(self._socket)
                self._socket = None

    def drop(self) -> None:
        """Close the connection; the next session makes a new one."""
        with self._lock:
            self._drop()
            while self._retired:
                end_master(self._retired.pop(), self._clock)

    def close(self) -> None:
        """Close it for good, and end any wait for another attempt."""
        self._closing.set()
        self.drop()

    def _drop(self) -> None:
        gone, self._socket = self._socket, None
        if gone is not None:
            end_master(gone, self._clock)

    def _ensure(self) -> Path:
        with self._lock:
            if self._socket is None:
                self._socket = with_attempts(self._connect, wait=self._wait, closing=self._closing)
            return self._socket

    def _connect(self) -> Path:
        if self._closing.is_set():
            raise LinkError(Trouble.CLOSED, f"the connections are being closed; {self.name} was not asked")
        options = self._resolved(*self.target.options, self.target.address)
        if "proxyjump" in options:
            with self._alone(options["proxyjump"]):
                self._reach(options["proxyjump"], depth=0)
        socket = self._folder / os.urandom(6).hex()
        words = [*self.target.options, "-o", "ControlMaster=yes", "-S", str(socket)]
        words += ["-o", f"ControlPersist={PERSIST_SECONDS}"]
        # A session over the connection would get them from here.
        words += ["-o", "SetEnv=LC_ALL=C"] if "setenv" in options else []
        words += self._without_command(options)
        try:
            self._log_in(self.name, *words, self.target.address)
        except LinkError:
            end_master(socket, self._clock)
            raise
        return socket

    def _resolved(self, *words: str) -> dict[str, str]:
        """The operator's configuration of a host, as `ssh` reads it; its words are the last ones."""
        _, said = self._run("-G", *words[:-1], "--", words[-1])
        options = dict(line.partition(" ")[::2] for line in said.splitlines())
        try:
            # What `ssh` itself checks before it puts them into a ProxyCommand depends on its version.
            address(options.get("hostname", words[-1]))
            if "user" in options:
                account(options["user"])
        except UntrustedValue as error:
            raise LinkError(Trouble.SETTINGS, f"the SSH configuration of {words[-1]}: {error}") from error
        return {name: value for name, value in options.items() if (name, value) != ("proxyjump", "none")}

    def _reach(self, jumps: str, *, depth: int) -> None:
        """Connect to jump hosts first: what `ssh` says of them while it connects to their target is lost."""
        if depth > MAX_JUMPS:
            circles = (
                f"more than {MAX_JUMPS} jump hosts on the way to {self.name}: does ProxyJump go in circles?"
            )
            raise LinkError(Trouble.SETTINGS, circles)
        hosts = jumps.split(",")
        for number, host in enumerate(hosts):
            try:
                words = jump_words(host)
            except UntrustedValue as error:
                raise LinkError(Trouble.SETTINGS, f"ProxyJump {jumps} of {self.name}: {error}") from error
            options = self._resolved(*words)
            if number:
                words = ("-J", ",".join(hosts[:number]), *words)
            elif "proxyjump" in options:
                self._reach(options["proxyjump"], depth=depth + 1)
            if self._run("-O", "check", *words[:-1], "--", words[-1])[0] != 0:
                self._log_in(f"jump host {host} of {self.name}", *self._without_command(options), *words)

    def _without_command(self, options: Mapping[str, str]) -> Sequence[str]:
        """Arguments against a KnownHostsCommand. An `ssh` that prints none may not have the keyword."""
        barred = self.target.own_known_hosts and "knownhostscommand" in options
        return ("-o", "KnownHostsCommand=none") if barred else ()

    def _log_in(self, name: str, *words: str) -> None:
        code, said = self._run("-T", "-a", "-x", "-k", "-f", "-N", *words[:-1], "--", words[-1])
        if code is None:
            said += f"\nno log-in within {self._log_in_seconds():g} s: timed out"
        if code != 0:
            raise LinkError(*diagnosed(name, said))

    def _log_in_seconds(self) -> Seconds:
        return self._limits.connect + self._limits.banner + self._limits.auth

    def _run(self, *arguments: str) -> tuple[int | None, str]:
        """Run `ssh` with the operator's configuration; exit code (None = past the limit), and all it said."""
        forced = (word for option in _FORCED for word in ("-o", option))
        argv = ("ssh", "-F", str(self.target.config), *forced, *arguments)
        environment = {**variables.for_programs(), "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}
        try:
            process = LocalProcess(argv, environment=environment, stdin=None, clock=self._clock)
        except OSError as error:
            missing = f"`ssh` cannot be run here ({error}): install it (openssh-client), or `connect: ssh`"
            raise LinkError(Trouble.SETTINGS, missing) from error
        out, err = Captured(), Captured()
        over = process.read(out, err, self._clock() + self._log_in_seconds())
        if not over:
            process.kill()
        code = process.end()
        return (code if over else None), (out.text() + err.text()).strip()


def jump_words(spec: str) -> tuple[str, ...]:
    """`[user@]host[:port]` of a ProxyJump as arguments of `ssh`, the host last; raises `UntrustedValue`."""
    user, host, port = split_jump(spec)
    return (*(("-l", user) if user else ()), *(("-p", port) if port else ()), host)


def end_master(socket: Path, clock: Callable[[], Seconds]) -> None:
    """End the process of a shared connection, if it is there."""
    if not socket.exists():
        return
    argv = ("ssh", "-F", "/dev/null", "-S", str(socket), "-O", "exit", "--", "host")
    process = LocalProcess(argv, environment=variables.for_commands(), stdin=None, clock=clock)
    if not process.read(Captured(), Captured(), clock() + _EXIT_SECONDS):
        process.kill()
    process.end()
    socket.unlink(missing_ok=True)
