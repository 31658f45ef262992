"""Hosts by the operator's own `ssh`: a shared connection to each (ControlMaster), made again when it is gone.

`ssh` reads the operator's configuration for the connection alone; the sessions over it read none. So nothing
of the configuration reaches a command: no RemoteCommand, terminal, forwarding or variable. The connection is
a process in the background in a session of its own, which ends with the run. Without a session, as after a
kill of this program, it ends after `PERSIST_SECONDS`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator import variables
from orchestrator.daemons import in_parallel
from orchestrator.hosts.connection import Captured, Ended, Streams, Trouble
from orchestrator.hosts.connections.frame import Frame, framed
from orchestrator.hosts.connections.local import LocalProcess
from orchestrator.hosts.connections.sessions import (
    CommandOrder,
    LinkError,
    RemoteHosts,
    SessionRefusedError,
    with_attempts,
)
from orchestrator.hosts.connections.ssh_route import MAX_JUMPS, split_jump
from orchestrator.model.host_settings import HostLimits, HostSettings
from orchestrator.model.reading import Seconds
from orchestrator.redact import beginning_of, end_of
from orchestrator.untrusted import UntrustedValue, account, address

# What `ssh` says when it cannot connect, and what to do ------------------------------------


NO_MASTER: Final = "orchestrate: the shared connection is gone"
"""What the proxy command of a session prints, which `ssh` runs only when it finds no shared connection."""
_BAD_SETTINGS: Final = (
    r"[Bb]ad configuration option|terminating, \d+ bad|Bad owner or permissions|too long for Unix domain"
    r"|[Uu]nsupported option|keyword .* extra arguments|Bad .*port|hostname contains invalid characters"
)
_CAUSES: Final = (
    (Trouble.CHANGED_KEY, r"IDENTIFICATION HAS CHANGED|Host key for .* has changed"),
    (Trouble.REVOKED_KEY, r"REVOKED HOST KEY|host key .*revoked|is marked as revoked"),
    (Trouble.UNKNOWN_KEY, r"Host key verification failed|No .* host key is known"),
    (Trouble.RESOLVE, r"Could not resolve hostname|Name or service not known"),
    (Trouble.AUTHENTICATION, r"Permission denied|Too many authentication failures|No supported auth"),
    (Trouble.PROTOCOL, r"Unable to negotiate|no matching|incompatible|Protocol major versions differ"),
    (Trouble.SETTINGS, _BAD_SETTINGS),
    (Trouble.REFUSED, r"Connection refused"),
    (Trouble.NO_ANSWER, r"timed out|[Tt]imeout|No route to host|Network is unreachable|Host is down"),
)
"""The first that fits: a refused key is followed by lines about a closed connection."""
_ADVICE: Final = {
    Trouble.CHANGED_KEY: "somebody may stand between, or the host was reinstalled: compare with its console",
    Trouble.REVOKED_KEY: "give the host a new key",
    Trouble.UNKNOWN_KEY: "compare the key with the host's console, and record it; `hosts.known_hosts` names"
    " another file",
    Trouble.RESOLVE: "correct the address in the cluster file or the SSH configuration",
    Trouble.AUTHENTICATION: "`ssh -o BatchMode=yes HOST` must log in without a question",
    Trouble.PROTOCOL: "allow what the host needs in the SSH configuration, and compare with `ssh -v HOST`",
    Trouble.SETTINGS: "correct the SSH configuration",
    Trouble.REFUSED: "is sshd running, and is this its port?",
    Trouble.NO_ANSWER: "is the host up, is there a firewall between?",
    Trouble.CLOSED: "see the log of its sshd",
}
_NOISE: Final = re.compile(
    r"^(?:@+|\s*|Warning: Permanently added.*|@ +WARNING: .*@|IT IS POSSIBLE THAT .*|Someone could be .*"
    r"|It is also possible that .*|Please contact .*|Add correct host key in .*"
    r"|Host key for .* has changed and .*|The fingerprint for the .* key sent by the remote host is)$"
)
"""Of a changed key, the banner of twelve lines: the file with the recorded key comes after it."""
_SHOWN_CHARACTERS: Final = 600


def diagnosed(name: str, text: str) -> tuple[Trouble, str]:
    """Why `ssh` could not connect to a host, as data and for people.

    Args:
        name: of the host, for the message.
        text: what `ssh` printed.
    """
    trouble = next((cause for cause, words in _CAUSES if re.search(words, text)), Trouble.CLOSED)
    lines = [line.strip() for line in text.splitlines() if not _NOISE.match(line)]
    said = end_of("; ".join(lines), _SHOWN_CHARACTERS) or "it said nothing"
    return trouble, f"ssh cannot connect to {name} ({said}): {_ADVICE[trouble]}"


def was_refused(text: str) -> bool:
    """Whether the server refused one more session on a connection."""
    return "Session open refused by peer" in text


def was_not_sent(text: str) -> bool:
    """Whether a session certainly sent no command: its shared connection was gone before it could ask.

    The client of a shared connection asks first whether the master is alive (`mux_client_request_alive` in
    OpenSSH's `mux.c`); if that cannot be written, it ends, before any session is requested.
    """
    gone = any(each in text for each in (NO_MASTER, "UNKNOWN port 65535", "mux_client_request_alive: write"))
    return gone and "mux_client_request_session" not in text


# The shared connection ------------------------------------


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
        self.target, self.limits = target, limits
        self._folder, self._alone, self._clock = folder, alone, clock
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
        return self.limits.connect + self.limits.banner + self.limits.auth

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


# A session of `ssh` for each command ------------------------------------


_DRAIN_SECONDS: Final = 0.5
"""Time to read standard error after the exit code, which comes on standard output."""
_OF_SSH_ITSELF: Final = 255
"""It exits with the code of the login shell, or this for faults of its own; below 0 a signal ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpensshSession:
    """A session whose command was begun, or may have been."""

    link: Master
    order: CommandOrder
    process: LocalProcess
    frame: Frame
    streams: Streams
    deadline: Seconds
    argv: tuple[str, ...]
    clock: Callable[[], Seconds]

    def abort(self) -> None:
        self.process.kill()

    def await_begin(self, within: Seconds) -> None:
        """Give it its input, and wait for the first mark, at most this long.

        Raises:
            LinkError: it ended, and certainly nothing was sent.
        """
        process, frame = self.process, self.frame
        try:
            until = min(self.deadline, self.clock() + within)
            if process.read(frame.stdout, frame.stderr, until, enough=lambda: frame.begun):
                self._require_sent()
        except BaseException:
            process.kill()
            process.end()
            raise

    def _require_sent(self) -> None:
        """Of a program that has ended or whose command has begun; raises `LinkError`."""
        if self.frame.begun:
            return
        said = self.frame.before()
        if was_refused(said):
            raise SessionRefusedError(
                f"{self.link.name} refused a session: {beginning_of(said.strip(), 200)}"
            )
        if was_not_sent(said):
            self.link.forget(self.argv)
            why = f"the connection to {self.link.name} is gone each time it is used"
            raise LinkError(Trouble.CLOSED, why)

    def attend(self) -> Ended:
        """Read a command to its end or its limit.

        Raises:
            LinkError: certainly nothing was sent; on a busy machine this may be heard late.
        """
        process, frame, streams = self.process, self.frame, self.streams
        try:
            sinks = frame.stdout, frame.stderr
            over = process.read(*sinks, self.deadline, enough=lambda: frame.exit is not None)
            if over and frame.exit is not None:
                process.read(*sinks, self.clock() + _DRAIN_SECONDS)
            frame.end()
        finally:
            process.kill()
            code = process.end()
        if frame.exit is not None:
            return streams.result(frame.exit)
        if over and not frame.begun and 0 < code != _OF_SSH_ITSELF:
            return frame.not_begun(code)
        if over:
            self._require_sent()
        name = self.link.name
        if not over:
            if not frame.begun:
                self.link.retire(self.argv)
            return streams.lost(f"no end within {self.order.timeout:g} s on {name}", timed_out=True)
        return streams.lost(f"the command on {name} lost its connection, or was killed", timed_out=False)


def begin(
    link: Master, order: CommandOrder, *, within: Seconds, clock: Callable[[], Seconds]
) -> OpensshSession:
    """Begin a command; a connection that was gone is made again once, since nothing was sent over it.

    Args:
        link: the connection to the host.
        order: the command.
        within: seconds in which a command usually begins; its end is not waited for.
        clock: monotonic seconds.

    Raises:
        LinkError: certainly nothing was sent.
    """
    again = True
    while True:
        session = _open(link, order, clock)
        try:
            session.await_begin(within)
        except SessionRefusedError:
            raise
        except LinkError:
            if not again:
                raise
            again = False
        else:
            return session


def _open(link: Master, order: CommandOrder, clock: Callable[[], Seconds]) -> OpensshSession:
    nonce, streams = secrets.token_hex(8), Streams(order.keep)
    argv = link.session(framed(order.command, nonce))
    if not order.is_wanted():
        late = f"{link.name} was connected to after the command had been given up"
        raise LinkError(Trouble.NO_ANSWER, late)
    try:
        process = LocalProcess(argv, environment=variables.for_commands(), stdin=order.stdin, clock=clock)
    except OSError as error:
        raise LinkError(Trouble.SETTINGS, f"`ssh` cannot be run here: {error}") from error
    return OpensshSession(
        link=link,
        order=order,
        process=process,
        frame=Frame(nonce, streams),
        streams=streams,
        deadline=clock() + order.timeout,
        argv=argv,
        clock=clock,
    )


# The hosts, and the folder of their connections ------------------------------------


_LONGEST_FOLDER: Final = 40
"""The path of a socket has room for 107 characters; the longest here has 65 more than its folder's parent."""
_END_SECONDS: Final = 5.0
_UNSAFE: Final = frozenset('"\\\n\r\0')


@dataclass(eq=False, kw_only=True)
class OpensshHosts(RemoteHosts[SshTarget, Master]):
    """Hosts by `ssh`, with the folder of the connections' sockets and configurations."""

    _folder: Path | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _configs: dict[str, Path] = field(default_factory=dict, init=False)
    _jumps: dict[str, threading.Lock] = field(default_factory=dict, init=False)
    _reached: set[str] = field(default_factory=set, init=False)

    def close(self) -> None:
        """End all connections, those to jump hosts last, and remove the folder."""
        super().close()
        if self._folder is None:
            return
        # A connection that ends by itself removes its socket at any moment.
        sockets = [path for path in self._folder.iterdir() if path.is_socket()]
        work = {str(path): partial(end_master, path, self.clock) for path in sockets}
        in_parallel(work, timeout=_END_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _link_to(self, target: SshTarget, limits: HostLimits) -> Callable[[], Master]:
        return partial(
            Master,
            target,
            self._own_folder(),
            limits,
            alone=self._alone,
            clock=self.clock,
            wait=self.wait,
        )

    def _begin(self, link: Master, order: CommandOrder) -> OpensshSession:
        return begin(link, order, within=link.limits.connect + link.limits.banner, clock=self.clock)

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
