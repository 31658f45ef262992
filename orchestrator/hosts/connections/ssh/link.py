"""One SSH connection, kept for a whole run and made again when it drops, directly or through a jump host.

An `SshLink` belongs to one server on the way. The target's link uses the link of its jump host, so thirty
targets behind one bastion share one connection to it. Host keys are checked before anything is sent: an
unknown, a changed or a revoked key ends the attempt, and no option of this program accepts one.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

import paramiko
from paramiko.auth_strategy import AuthFailure
from paramiko.ssh_exception import IncompatiblePeer

from orchestrator import variables
from orchestrator.hosts.connection import Trouble, UnknownKey, unknown_keys
from orchestrator.hosts.connections.attempts import with_attempts
from orchestrator.hosts.connections.sessions import LinkError, SessionRefusedError
from orchestrator.hosts.connections.ssh import known_hosts
from orchestrator.hosts.connections.ssh.config_file import USE_OPENSSH
from orchestrator.hosts.connections.ssh.keys import KeyStrategy
from orchestrator.hosts.connections.ssh.keywords import Stage, chosen
from orchestrator.hosts.connections.ssh.known_hosts import HostKey, KeyVerdict, KnownKey
from orchestrator.hosts.connections.ssh.route import Hop
from orchestrator.hosts.settings import HostLimits
from orchestrator.model.reading import Seconds

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
        """Close the connection; the next channel makes a new one."""
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
