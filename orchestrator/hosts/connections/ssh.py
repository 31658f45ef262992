"""Hosts by paramiko: connections that are kept for a whole run and made again when they drop.

An `SshLink` belongs to one server on the way. The target's link uses the link of its jump host, so thirty
targets behind one bastion share one connection to it. Host keys are checked before anything is sent: an
unknown, a changed or a revoked key ends the attempt, and no option of this program accepts one.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import select
import shlex
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, cast

import paramiko
from paramiko.auth_strategy import AuthFailure, AuthSource, AuthStrategy, InMemoryPrivateKey, OnDiskPrivateKey
from paramiko.pkey import PublicBlob, UnknownKeyType
from paramiko.ssh_exception import IncompatiblePeer

from orchestrator import variables
from orchestrator.hosts.connection import Ended, Streams, Trouble, UnknownKey, unknown_keys
from orchestrator.hosts.connections import known_hosts
from orchestrator.hosts.connections.frame import Frame, framed
from orchestrator.hosts.connections.known_hosts import HostKey, KeyVerdict, KnownKey
from orchestrator.hosts.connections.sessions import (
    CommandOrder,
    LinkError,
    RemoteHosts,
    SessionRefusedError,
    with_attempts,
)
from orchestrator.hosts.connections.ssh_route import (
    USE_OPENSSH,
    Hop,
    Route,
    RouteError,
    Stage,
    chosen,
    find_route,
    read_config,
)
from orchestrator.model.host_settings import HostLimits, HostSettings
from orchestrator.model.reading import Seconds

# Keys to log in with ------------------------------------


class KeyStrategy(AuthStrategy):
    """Public keys only: agent keys that a key file names first, then the files, then other agent keys.

    Servers close the connection after a few tries (`MaxAuthTries`, 6), so an agent full of keys must not go
    first.

    Attributes:
        notes: why a key was not offered at all, for the message.
    """

    def __init__(self, hop: Hop) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._hop = hop
        self._agent: paramiko.Agent | None = None
        self.notes: list[str] = []

    def get_sources(self) -> Iterator[AuthSource]:
        """Yield the keys in the order in which they are offered."""
        user = self._hop.user
        agent_keys = self._agent_keys()
        named = {blob for path in self._hop.identities if (blob := _public_part(path)) is not None}
        for key in agent_keys:
            if key.asbytes() in named:
                yield InMemoryPrivateKey(user, key)
        held = {key.asbytes() for key in agent_keys}
        for path in self._hop.identities:
            if _public_part(path) in held:
                continue  # the agent has already offered it
            loaded = self._load(path)
            if loaded is not None:
                yield OnDiskPrivateKey(user, "ssh-config", Path(path).expanduser(), loaded)
        if not self._hop.identities_only:
            for key in agent_keys:
                if key.asbytes() not in named:
                    yield InMemoryPrivateKey(user, key)

    def close(self) -> None:
        """Close the connection to the agent."""
        if self._agent is not None:
            self._agent.close()

    def _agent_keys(self) -> tuple[paramiko.AgentKey, ...]:
        if not self._hop.use_agent:
            return ()
        try:
            self._agent = paramiko.Agent()
            return self._agent.get_keys()
        except (paramiko.SSHException, OSError) as error:
            self.notes.append(f"agent: {error}")
            return ()

    def _load(self, path: str) -> paramiko.PKey | None:
        file = Path(path).expanduser()
        if not file.is_file():
            self.notes.append(f"{path}: no such file")
            return None
        try:
            return paramiko.PKey.from_path(file)
        except (paramiko.PasswordRequiredException, TypeError):
            # cryptography raises TypeError for a PEM key that needs a passphrase.
            self.notes.append(f"{path}: has a passphrase; add it to an agent (ssh-add)")
        except (paramiko.SSHException, UnknownKeyType, OSError, ValueError) as error:
            self.notes.append(f"{path}: {error}")
        return None


def _public_part(path: str) -> bytes | None:
    """The public key beside a private key file; None if there is no readable one."""
    file = Path(f"{path}.pub").expanduser()
    try:
        fields = file.read_text(encoding="utf-8").split()
        return PublicBlob.from_string(" ".join(fields[:2])).key_blob
    except (OSError, ValueError, IndexError):
        return None


# The connection ------------------------------------


_USER_TIMEOUT_MS: Final = 30_000
"""Sent data that the peer's kernel does not acknowledge for so long ends the connection."""

# Faults are returned as data with their remedy; paramiko would log a traceback as well.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class SshLink:
    """The connection to one SSH server.

    Args:
        hop: the server.
        parent: the link to the jump host before it; None when it is reached directly.
        limits: of everything that waits.
        wait: waits this many seconds between attempts; None = an interruptible wait.
    """

    def __init__(
        self,
        hop: Hop,
        parent: SshLink | None,
        limits: HostLimits,
        *,
        wait: Callable[[Seconds], object] | None = None,
    ) -> None:
        self.hop = hop
        self._parent, self._limits = parent, limits
        self._closing = threading.Event()
        self._wait = wait or self._closing.wait
        self._lock = threading.Lock()
        self._transport: paramiko.Transport | None = None
        self._retired: list[paramiko.Transport] = []
        self._in_use: Counter[paramiko.Transport] = Counter()
        self._carried_by: dict[object, paramiko.Transport] = {}

    def open_session(self) -> paramiko.Channel:
        """Open a channel for a command, making the connection again if it has dropped.

        Raises:
            LinkError: not possible; nothing was sent.
        """
        return self._open(lambda transport: transport.open_session(timeout=self._limits.connect))

    def open_tcp(self, host: str, port: int) -> paramiko.Channel:
        """Open a channel to a server behind this one.

        Raises:
            LinkError: not possible.
        """
        target = (host, port)
        return self._open(
            lambda transport: transport.open_channel(
                "direct-tcpip", target, ("127.0.0.1", 0), timeout=self._limits.connect
            )
        )

    def retire(self, transport: paramiko.Transport) -> None:
        """The next channel makes a new connection; this one is closed with the last channel over it."""
        with self._lock:
            if self._transport is transport:
                self._transport = None
                self._retired.append(transport)

    def release(self, channel: object) -> None:
        """Count a channel as closed, once."""
        with self._lock:
            transport = self._carried_by.pop(channel, None)
        if transport is not None:
            self._give_back(transport)

    def drop(self) -> None:
        with self._lock:
            self._drop()
            while self._retired:
                _end(self._retired.pop())

    def close(self) -> None:
        """Close it for good, and end any wait for another attempt."""
        self._closing.set()
        self.drop()

    def alive(self) -> bool:
        """Whether the connection is open, as far as this is known without sending anything."""
        transport = self._transport
        return transport is not None and transport.is_active()

    def _open(self, open_channel: Callable[[paramiko.Transport], paramiko.Channel]) -> paramiko.Channel:
        """Open a channel; a dead connection is made again once, since nothing was sent over it."""
        again = self.alive()
        while True:
            transport = self._take()
            try:
                channel = open_channel(transport)
            except Exception as error:  # any error of paramiko's reader of this connection is raised here
                refused = _is_refusal(error, transport)
                if not refused:
                    self.retire(transport)
                self._give_back(transport)
                if refused:
                    raise SessionRefusedError(f"{self.hop} refused a channel: {error}") from error
                if not again:
                    raise LinkError(
                        Trouble.NO_ANSWER, f"{self.hop} opened no channel: {_named(error)}"
                    ) from error
                again = False
            else:
                with self._lock:
                    self._carried_by[channel] = transport
                return channel

    def _give_back(self, transport: paramiko.Transport) -> None:
        with self._lock:
            self._in_use[transport] -= 1
            if not self._in_use[transport]:
                del self._in_use[transport]
                if transport in self._retired:
                    self._retired.remove(transport)
                    _end(transport)

    def _drop(self) -> None:
        gone, self._transport = self._transport, None
        if gone is not None:
            _end(gone)

    def _take(self) -> paramiko.Transport:
        """The connection, made if needed; a limited number of attempts where another attempt can help.

        It counts as used until it is given back.
        """
        with self._lock:
            if self._transport is None or not self._transport.is_active():
                self._drop()
                self._transport = with_attempts(self._connect, wait=self._wait, closing=self._closing)
            self._in_use[self._transport] += 1
            return self._transport

    def _connect(self) -> paramiko.Transport:
        if self._closing.is_set():
            raise LinkError(Trouble.CLOSED, f"the connections are being closed; {self.hop} was not asked")
        carrier = self._carrier()
        try:
            return self._log_in(carrier)
        except BaseException:
            carrier.close()
            raise

    def _carrier(self) -> socket.socket | paramiko.Channel | paramiko.ProxyCommand:
        """The transport of the SSH connection: a socket, a channel of the jump host, or a proxy command."""
        host, port = self.hop.host, self.hop.port
        if self._parent is not None:
            try:
                return cast("paramiko.Channel", _Tunnel(self._parent, self._parent.open_tcp(host, port)))
            except LinkError as error:
                found = error.unreachable
                raise LinkError(
                    found.trouble, f"{self.hop} by jump host {self._parent.hop}: {found.reason}"
                ) from error
        if self.hop.proxy_command is not None:
            return self._proxy(self.hop.proxy_command)
        try:
            connected = socket.create_connection((host, port), timeout=self._limits.connect)
        except (socket.gaierror, ValueError) as error:
            # ValueError: `a..b`, or a label of more than 63 letters, is no valid host name.
            why = error.strerror if isinstance(error, socket.gaierror) else error
            raise LinkError(
                Trouble.RESOLVE,
                f"{host} does not resolve ({why}): correct the address of {self.hop.alias} in the"
                " cluster file or the SSH configuration, or the name service"
                + self._needs_ssh(Stage.CONNECT),
            ) from error
        except ConnectionRefusedError as error:
            raise LinkError(
                Trouble.REFUSED,
                f"{host} port {port} refuses the connection: is sshd running, and is this its port?"
                + self._needs_ssh(Stage.CONNECT),
            ) from error
        except OSError as error:
            raise LinkError(
                Trouble.NO_ANSWER,
                f"{host} port {port} does not answer ({error}): is the host up, is there a firewall between?"
                + self._needs_ssh(Stage.CONNECT),
            ) from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        return connected

    def _proxy(self, command: str) -> paramiko.ProxyCommand:
        try:
            return _ProxyCommand(command)
        except (OSError, ValueError, LookupError) as error:  # not there, its quoting is wrong, or it is empty
            raise LinkError(
                Trouble.SETTINGS,
                f"the ProxyCommand of {self.hop.alias} cannot be run ({error}): correct"
                f" `ProxyCommand {command}` in the SSH configuration; it is run without a shell",
            ) from error

    def _log_in(
        self, carrier: socket.socket | paramiko.Channel | paramiko.ProxyCommand
    ) -> paramiko.Transport:
        """Key exchange, host key, log-in: in this order, each within its limit."""
        try:
            lines = known_hosts.load(self.hop.known_hosts)
        except (OSError, RuntimeError) as error:
            raise LinkError(Trouble.SETTINGS, f"known hosts cannot be read: {error}") from error
        known = known_hosts.for_host(lines, self.hop.key_names)
        transport = paramiko.Transport(carrier)
        try:
            transport.banner_timeout = self._limits.banner
            transport.handshake_timeout = self._limits.connect
            transport.auth_timeout = self._limits.auth
            self._prefer(transport, known)
            transport.start_client(timeout=self._limits.connect + self._limits.banner)
            self._check_key(transport.get_remote_server_key(), known)
            self._authenticate(transport)
            transport.set_keepalive(round(self._limits.keepalive))
        except LinkError:
            transport.close()
            raise
        except Exception as error:
            # paramiko raises any error of its reader, and invalid bytes can cause an error of any type.
            transport.close()
            raise self._diagnosed(error) from error
        return transport

    def _diagnosed(self, error: Exception) -> LinkError:
        """Separate a server that closes the connection from an unresponsive and from an incompatible one."""
        text = str(error) or type(error).__name__
        if isinstance(error, IncompatiblePeer):
            return LinkError(
                Trouble.PROTOCOL,
                f"{self.hop} and this program share no algorithm ({text}), as with old servers that have only"
                f" SHA-1; {USE_OPENSSH}, with `HostKeyAlgorithms +ssh-rsa` for this host there",
            )
        if _timed_out(error):
            return LinkError(
                Trouble.NO_ANSWER, f"{self.hop} accepted the connection and then said nothing: {text}"
            )
        if not isinstance(error, (paramiko.SSHException, OSError, EOFError)):
            return LinkError(
                Trouble.PROTOCOL,
                f"{self.hop} answered what is not understood ({_named(error)}): is it really sshd that"
                " listens there? Compare with `ssh -v`",
            )
        return LinkError(Trouble.CLOSED, f"{self.hop} closed the connection before the log-in: {text}")

    def _needs_ssh(self, stage: Stage) -> str:
        """The lines of the SSH configuration that could have helped where this stage failed."""
        lines = " and ".join(f"`{line}`" for at, line in self.hop.unfollowed if at is stage)
        return f"; {lines} of the SSH configuration: {USE_OPENSSH}" if lines else ""

    def _prefer(self, transport: paramiko.Transport, known: tuple[KnownKey, ...]) -> None:
        """Ask for a key of a known type: else a host with several keys may show one that is unknown here."""
        kinds = {line.key.kind for line in known if line.key is not None and line.trusted}
        if "ssh-rsa" in kinds:
            kinds |= {"rsa-sha2-512", "rsa-sha2-256"}
        options, listed = transport.get_security_options(), self.hop.host_key_algorithms
        allowed = sorted(chosen(options.key_types, listed), key=lambda kind: kind not in kinds)
        if not allowed:
            said = f"`HostKeyAlgorithms {listed}` leaves {self.hop} none that this program has"
            raise LinkError(Trouble.PROTOCOL, f"{said}; {USE_OPENSSH}")
        options.key_types = tuple(allowed)

    def _check_key(self, shown: paramiko.PKey, known: tuple[KnownKey, ...]) -> None:
        key = HostKey(kind=shown.get_name(), blob=shown.asbytes())
        name, least = self.hop.key_names[0], self.hop.least_rsa_bits
        if isinstance(shown, paramiko.RSAKey) and shown.get_bits() < least:
            small = (
                f"the RSA key of {name} has {shown.get_bits()} bits, and the SSH configuration wants {least}"
            )
            raise LinkError(Trouble.PROTOCOL, f"{small} (`RequiredRSASize`): give the host another key")
        match known_hosts.judge(known, key):
            case KeyVerdict.TRUSTED:
                return
            case KeyVerdict.UNKNOWN:
                authorities = ", ".join(line.where for line in known if line.authority)
                if authorities:
                    raise LinkError(
                        Trouble.UNKNOWN_KEY,
                        f"{name} is known by a certificate authority ({authorities}), and this program cannot"
                        f" check certificates of hosts; {USE_OPENSSH}",
                    )
                spoiled = ", ".join(line.where for line in known if line.key is None)
                hint = f"; {spoiled} cannot be read: correct or delete it" if spoiled else ""
                unknown = UnknownKey(
                    name=name,
                    host=self.hop.host,
                    port=self.hop.port,
                    shown=key.fingerprint,
                    files=self.hop.known_hosts,
                )
                hint += self._needs_ssh(Stage.HOST_KEY)
                raise LinkError(Trouble.UNKNOWN_KEY, unknown_keys([unknown]) + hint, unknown)
            case KeyVerdict.CHANGED:
                listed = ", ".join(
                    f"{line.key.fingerprint} ({line.where})"
                    for line in known
                    if line.key is not None and line.trusted
                )
                raise LinkError(
                    Trouble.CHANGED_KEY,
                    f"the key of {name} has CHANGED. Known: {listed}; it shows {key.fingerprint}."
                    " Somebody may stand between, or the host was reinstalled. If its console confirms the"
                    f" new fingerprint: `ssh-keygen -R '{name}' -f {self.hop.known_hosts[0]}`, then record"
                    " the new key",
                )
            case KeyVerdict.REVOKED:
                where = ", ".join(line.where for line in known if line.revoked)
                raise LinkError(
                    Trouble.REVOKED_KEY,
                    f"the host key of {name}, {key.fingerprint}, is revoked ({where}): give it a new one",
                )

    def _authenticate(self, transport: paramiko.Transport) -> None:
        strategy = KeyStrategy(self.hop)
        try:
            result = strategy.authenticate(transport)
        except AuthFailure as error:
            tried = len(error.result)
            notes = f" ({'; '.join(strategy.notes)})" if strategy.notes else ""
            raise LinkError(
                Trouble.AUTHENTICATION,
                f"{self.hop} took none of {tried} keys offered{notes}: set `hosts.identity`, load the key"
                f" into an agent, or put the public key into ~{self.hop.user}/.ssh/authorized_keys there. For"
                f" GSSAPI, security keys, and RSA keys on servers before OpenSSH 7.2: {USE_OPENSSH}"
                + self._needs_ssh(Stage.LOG_IN),
            ) from error
        finally:
            with contextlib.suppress(OSError):  # an agent that is gone needs no closing
                strategy.close()
        further = [method for source in result if isinstance(source.result, list) for method in source.result]
        if further:
            raise LinkError(
                Trouble.AUTHENTICATION,
                f"{self.hop} wants more than a key ({', '.join(further)}): a run needs an account"
                f" that a key alone opens; or {USE_OPENSSH}",
            )


def _end(transport: paramiko.Transport) -> None:
    transport.close()
    transport.sock.close()  # paramiko leaves it open where the connection has ended by itself


class _Tunnel:
    """The channel of a jump host that carries a connection, as paramiko uses a socket.

    Closing the channel of a dead connection raises; it is closed then. paramiko closes it in its own thread
    too, which would end with a traceback on the terminal.
    """

    def __init__(self, jump: SshLink, channel: paramiko.Channel) -> None:
        self._jump, self._channel = jump, channel
        self.settimeout, self.send, self.recv = channel.settimeout, channel.send, channel.recv

    @property
    def _closed(self) -> bool:
        return self._channel.closed

    def close(self) -> None:
        """Give the channel back; any number of times."""
        with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
            self._channel.close()
        self._jump.release(self._channel)


class _ProxyCommand(paramiko.ProxyCommand):
    """A proxy command that gets no secret of this program; paramiko's gets every variable."""

    def __init__(self, line: str) -> None:
        self.cmd = shlex.split(line)
        self.timeout = None
        self.process = subprocess.Popen(  # noqa: S603  (the operator's own, from the SSH configuration)
            self.cmd,
            env=variables.for_programs(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    def close(self) -> None:
        """End it; paramiko's signals a number that may be another process's by now.

        One of another account, such as `sudo ip netns exec`, may not be signalled: it ends with its pipes.
        """
        with contextlib.suppress(OSError):
            self.process.terminate()

    def __del__(self) -> None:
        """End it with its pipes. Not in `close`, which paramiko calls while its thread still reads them."""
        with contextlib.suppress(AttributeError, OSError), self.process:  # none where it could not be started
            self.process.kill()


def _is_refusal(error: Exception, transport: paramiko.Transport) -> bool:
    """Whether the server works and refuses a channel: too many sessions, or no permission to forward.

    Of several refusals at once, paramiko keeps one error and gives the other callers one without a cause.
    """
    nameless = str(error) == "Unable to open channel." and transport.is_active()
    return isinstance(error, paramiko.ChannelException) or nameless


def _named(error: Exception) -> str:
    """An error with its type, since the text of many errors is not enough."""
    return f"{type(error).__name__}: {error}"


def _timed_out(error: BaseException | None) -> bool:
    """Whether a time-out caused an error: paramiko reports each kind of time-out differently."""
    while error is not None:
        if isinstance(error, TimeoutError) or "timeout" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


# A channel for each command ------------------------------------


_READ_BYTES: Final = 64 * 1024
_READS_A_TURN: Final = 64
_LOOK_SECONDS: Final = 1.0
"""The longest sleep in `poll`; output, the end of the command or a lost connection wakes it earlier."""
_DRAIN_SECONDS: Final = 0.5
"""Time to read after the exit code: output in transit arrives within it, and a daemon that keeps the output
open costs no more than this."""
_NO_EXIT_CODE: Final = -1
"""paramiko's value for "the channel closed without one"."""


class ChannelSession:
    """A channel on which a command will be run.

    Args:
        link: the connection to the host.
        order: the command.
        clock: monotonic seconds.

    Raises:
        LinkError: no channel could be opened; nothing was sent.
    """

    def __init__(self, link: SshLink, order: CommandOrder, clock: Callable[[], Seconds]) -> None:
        self._link, self._order, self._clock = link, order, clock
        self._channel = link.open_session()
        self._deadline = clock() + order.timeout
        self._nonce = secrets.token_hex(8)
        self.streams = Streams(order.keep)
        self._frame = Frame(self._nonce, self.streams)

    def abort(self) -> None:
        """Close the channel. One whose connection was lost a moment ago raises, and is closed with it."""
        with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
            self._channel.close()
        self._link.release(self._channel)

    def attend(self) -> Ended:
        """Send the command, and read it to its end or its limit."""
        hop, timeout = self._link.hop, self._order.timeout
        try:
            if not self._send():
                return self.streams.lost(f"{hop} gave no answer within {timeout:g} s", timed_out=True)
            over = self._read()
            self._frame.end()
            if self._frame.exit is not None:
                return self.streams.result(self._frame.exit)
            if not over:
                return self.streams.lost(f"no end within {timeout:g} s on {hop}", timed_out=True)
            ready = self._channel.exit_status_ready()
            code = self._channel.recv_exit_status() if ready else _NO_EXIT_CODE
            # With all output read, a missing first mark shows that the script was not begun.
            if code > 0 and not self._frame.begun and self._channel.eof_received:
                return self._frame.not_begun(code)
        except (paramiko.SSHException, OSError, EOFError) as error:
            return self.streams.lost(f"the connection to {hop} was lost: {error}", timed_out=False)
        finally:
            self.abort()
        open_still = self._channel.get_transport().is_active()
        why = "was killed by a signal" if open_still else "lost its connection"
        return self.streams.lost(f"the command on {hop} {why}", timed_out=False)

    def _send(self) -> bool:
        """Send the command and its input; False when the limit ran out first."""
        # exec_command waits for the server's answer without a limit: closing the channel ends that wait.
        watchdog = threading.Timer(max(0.0, self._deadline - self._clock()), self._not_acknowledged)
        watchdog.daemon = True
        watchdog.start()
        try:
            self._channel.exec_command(framed(self._order.command, self._nonce))
            self._channel.settimeout(self._order.timeout)
            if self._order.stdin is not None:
                # A command that does not read its input ends before: its exit code is the result.
                with contextlib.suppress(OSError):
                    self._channel.sendall(self._order.stdin.encode())
            self._channel.shutdown_write()
        except (paramiko.SSHException, OSError, EOFError):
            if self._clock() < self._deadline:
                raise
            return False
        finally:
            watchdog.cancel()
        return True

    def _not_acknowledged(self) -> None:
        """The server may hang: the next command gets another connection, and those that run keep theirs."""
        self._link.retire(self._channel.get_transport())
        self.abort()

    def _read(self) -> bool:
        """Read until the command and its output have ended; False when the limit ran out first."""
        channel = self._channel
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLIN)
        quiet_until: Seconds | None = None
        while True:
            # In this order: output between the flag and the reading is then read in the next turn.
            over = channel.eof_received or channel.closed
            if self._drain() and self._frame.exit is None:
                quiet_until = None
            if over:
                while self._drain():
                    pass  # no more output can arrive: the buffered output was the last
                break
            now = self._clock()
            if channel.exit_status_ready() or self._frame.exit is not None:
                quiet_until = now + _DRAIN_SECONDS if quiet_until is None else quiet_until
                if now >= quiet_until:
                    return True
            if now >= self._deadline:
                return False
            until = min(self._deadline, quiet_until if quiet_until is not None else now + _LOOK_SECONDS)
            poller.poll(max(1.0, (until - now) * 1000))
        # The output has ended; the exit code follows, or the channel closes without one.
        left = max(0.0, self._deadline - self._clock())
        return self._frame.exit is not None or channel.status_event.wait(left)

    def _drain(self) -> bool:
        """Read some of the available output, so that a flood cannot keep the limit from being checked."""
        found = False
        for _ in range(_READS_A_TURN):
            if self._channel.recv_ready():
                self._frame.stdout.add(self._channel.recv(_READ_BYTES))
            elif self._channel.recv_stderr_ready():
                self._frame.stderr.add(self._channel.recv_stderr(_READ_BYTES))
            else:
                break
            found = True
        return found


# The hosts ------------------------------------


@dataclass(eq=False, kw_only=True)
class SshHosts(RemoteHosts[Route, SshLink]):
    """Hosts by paramiko, with the one connection to each jump host."""

    _jumps: dict[Route, SshLink] = field(default_factory=dict, init=False)
    _routes: dict[tuple[object, ...], Route] = field(default_factory=dict, init=False)

    def close(self) -> None:
        """Close all connections, those behind a jump host first."""
        super().close()
        for route in sorted(self._jumps, key=len, reverse=True):
            self._jumps[route].close()

    def _target(self, settings: HostSettings) -> Route:
        """The hops to a host, computed once."""
        key = (
            settings.address,
            settings.port,
            settings.user,
            settings.identities,
            settings.known_hosts,
            settings.use_agent,
            settings.ssh_config,
        )
        if key not in self._routes:
            try:
                self._routes[key] = find_route(settings, read_config(settings.ssh_config))
            except RouteError as error:
                raise LinkError(Trouble.SETTINGS, str(error)) from error
        return self._routes[key]

    def _link_to(self, target: Route, limits: HostLimits) -> Callable[[], SshLink]:
        parent = self._jump(target[:-1], limits)
        return partial(SshLink, target[-1], parent, limits, wait=self.wait)

    def _begin(self, link: SshLink, order: CommandOrder) -> ChannelSession:
        return ChannelSession(link, order, self.clock)

    def _jump(self, route: Route, limits: HostLimits) -> SshLink | None:
        """The one connection to a jump host; it carries no sessions."""
        if route and route not in self._jumps:
            self._jumps[route] = SshLink(route[-1], self._jump(route[:-1], limits), limits, wait=self.wait)
        return self._jumps.get(route)
