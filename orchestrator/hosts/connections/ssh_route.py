"""The way to a host: settings, then the SSH client configuration, then its defaults; jump hosts first.

The configuration is read as `ssh` reads it: the user's file, then the system's, each with includes. The first
value of an option counts, so the user's file takes precedence. paramiko matches. What it does not do
(`Include`) or does wrongly (`Match final all`, unknown criteria, `ProxyCommand none`) is arranged here first.
Tokens (`%h`) are expanded here, and only to values that remain one word in the command line of a
ProxyCommand. The route can be shown without connecting.
"""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import Any, Final

import paramiko

from orchestrator.hosts.connections.known_hosts import DEFAULT_PORT, host_names
from orchestrator.model.host_settings import HostSettings
from orchestrator.owners import why_not
from orchestrator.untrusted import UntrustedValue, account, address, shortened

MAX_JUMPS: Final = 8
"""More jumps than this are a cycle in the configuration."""


def split_jump(spec: str) -> tuple[str, str, str]:
    """User, host and port of `[user@]host[:port]`; user and port are empty where they are not named.

    Raises:
        UntrustedValue: the host is no address, or the user no name of an account.
    """
    user, _, rest = spec.strip().removeprefix("ssh://").rpartition("@")
    host, port = rest, ""
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    return account(user) if user else "", address(host), port


# Which keywords are followed ------------------------------------


class Stage(Enum):
    """When a keyword that is not followed is reported."""

    NEVER = "it is followed, or matters neither for the host, nor for its key, nor for the log-in"
    BEFORE = "always: nothing is sent"
    CONNECT = "where no connection is made"
    HOST_KEY = "where the key of the host is not known: it could only add known keys"
    LOG_IN = "where the log-in fails"


_TABLE: Final = {
    Stage.NEVER: (
        # followed
        "HostName Port User IdentityFile IdentitiesOnly HostKeyAlias HostKeyAlgorithms RequiredRSASize"
        " RSAMinSize UserKnownHostsFile GlobalKnownHostsFile ProxyCommand ProxyJump"
        # always as strict as it can be
        " StrictHostKeyChecking NoHostAuthenticationForLocalhost BatchMode UpdateHostKeys HashKnownHosts"
        # host keys have no certificates here, and names are not made canonical
        " CASignatureAlgorithms CanonicalDomains CanonicalizeFallbackLocal CanonicalizeMaxDots"
        " CanonicalizePermittedCNAMEs IgnoreUnknown Tag"
        # the encryption, the connection and its limits
        " Ciphers MACs KexAlgorithms GSSAPIKexAlgorithms Compression CompressionLevel RekeyLimit IPQoS"
        " ConnectTimeout ConnectionAttempts ServerAliveInterval ServerAliveCountMax TCPKeepAlive KeepAlive"
        " ChannelTimeout ControlMaster ControlPath ControlPersist ObscureKeystrokeTiming WarnWeakCrypto"
        " VersionAddendum"
        # a log-in by password, which no way of this program has, and what is kept of one
        " PasswordAuthentication KbdInteractiveAuthentication KbdInteractiveDevices"
        " ChallengeResponseAuthentication NumberOfPasswordPrompts PubkeyAuthentication AddKeysToAgent"
        " UseKeychain EnableSSHKeysign"
        # what a session gets
        " SendEnv SetEnv RemoteCommand RequestTTY SessionType StdinNull ForkAfterAuthentication LocalCommand"
        " PermitLocalCommand EscapeChar EnableEscapeCommandline ForwardAgent ForwardX11 ForwardX11Timeout"
        " ForwardX11Trusted XAuthLocation DynamicForward LocalForward RemoteForward PermitRemoteOpen"
        " GatewayPorts ExitOnForwardFailure ClearAllForwardings StreamLocalBindMask StreamLocalBindUnlink"
        " Tunnel TunnelDevice"
        # what is printed
        " LogLevel LogVerbose SyslogFacility VisualHostKey FingerprintHash"
        # `ssh` ignores them too
        " Protocol Cipher UsePrivilegedPort UseRoaming RSAAuthentication RhostsRSAAuthentication"
        " RhostsAuthentication DSAAuthentication FallBackToRsh UseRsh GlobalKnownHostsFile2"
        " UserKnownHostsFile2"
    ),
    Stage.CONNECT: "AddressFamily BindAddress BindInterface",
    Stage.HOST_KEY: "VerifyHostKeyDNS GSSAPIKeyExchange",
    Stage.LOG_IN: (
        "IdentityAgent PKCS11Provider SmartcardDevice SecurityKeyProvider CertificateFile"
        " PreferredAuthentications PubkeyAcceptedAlgorithms PubkeyAcceptedKeyTypes HostbasedAuthentication"
        " HostbasedAcceptedAlgorithms HostbasedKeyTypes GSSAPIAuthentication GSSAPIClientIdentity"
        " GSSAPIDelegateCredentials GSSAPIRenewalForcesRekey GSSAPIServerIdentity GSSAPITrustDns"
    ),
    # The spelling is for messages: any keyword that is not in the table is in this row.
    Stage.BEFORE: (
        "CanonicalizeHostname CheckHostIP KnownHostsCommand ProxyUseFdpass RefuseConnection RevokedHostKeys"
    ),
}
"""Each keyword has one place. One that is not here, as of a newer OpenSSH, is refused before anything is
sent: it may decide which host is reached, or which key is trusted."""
_STAGES: Final = {word.lower(): stage for stage, words in _TABLE.items() for word in words.split()}
_SPELLING: Final = {word.lower(): word for words in _TABLE.values() for word in words.split()}
_WITHOUT_EFFECT: Final = frozenset({"no", "false", "none", "any", "ssh_auth_sock"})
"""Values with which a keyword that is not followed has no effect, in lower case."""
_OF_KNOWN_HOSTS: Final = frozenset({"knownhostscommand", *_TABLE[Stage.HOST_KEY].lower().split()})
"""They add known keys; `hosts.known_hosts` is in place of all that the SSH configuration says of these."""
_FILES: Final = frozenset({"userknownhostsfile", "globalknownhostsfile"})
_TOKEN: Final = re.compile(r"%|\$\{")

Unfollowed = tuple[tuple[Stage, str], ...]
"""Lines that are not followed, and when they are reported."""


def unfollowed(options: Mapping[str, object], *, own_known_hosts: bool) -> Unfollowed:
    """The options of one host that are not followed.

    Args:
        options: by keyword in lower case, as the configuration has them for this host.
        own_known_hosts: whether the cluster file names the known hosts.
    """
    found = []
    for keyword, value in options.items():
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        stage = _STAGES.get(keyword, Stage.BEFORE)
        if keyword in _FILES:
            # Their tokens are not expanded here: keys in such a file, or their revocation, would be missed.
            stage = Stage.BEFORE if _TOKEN.search(text) else Stage.NEVER
        replaced = own_known_hosts and keyword in _OF_KNOWN_HOSTS | _FILES
        if stage is not Stage.NEVER and not replaced and text.lower() not in _WITHOUT_EFFECT:
            found.append((stage, f"{_SPELLING.get(keyword, keyword)} {text}"))
    return tuple(found)


def chosen(ours: Iterable[str], listed: str) -> tuple[str, ...]:
    """Those of our algorithms that a list such as `HostKeyAlgorithms` leaves.

    Args:
        ours: in the order of preference.
        listed: patterns with commas; behind `-` those that are removed. `+` and `^` remove none. Empty = all.
    """
    if listed[:1] in ("", "+", "^"):
        return tuple(ours)
    patterns, keep = listed.lstrip("-").split(","), not listed.startswith("-")
    return tuple(one for one in ours if any(fnmatchcase(one, each) for each in patterns) is keep)


# The files ------------------------------------


USE_OPENSSH: Final = "`hosts.connect: openssh` can: it runs `ssh` itself"
"""The remedy for everything that `ssh` can do and paramiko cannot."""
MAX_INCLUDES: Final = 16
"""The same depth as in `ssh`."""
_SYSTEM: Final = Path("/etc/ssh")
_BLOCK: Final = re.compile(r"\s*(?:host|match)\b", re.IGNORECASE)
_MATCH: Final = re.compile(r"\s*match(?:\s*=\s*|\s+)(.+)", re.IGNORECASE)
_INCLUDE: Final = re.compile(r"\s*include(?:\s*=\s*|\s+)(.+)", re.IGNORECASE)
_NO_PROXY: Final = re.compile(r"\s*proxycommand(?:\s*=\s*|\s+)\"?none\"?\s*", re.IGNORECASE)
_ALONE: Final = frozenset({"all", "canonical", "final"})
"""Criteria of `Match` without a value."""
_SUPPORTED: Final = frozenset({"host", "originalhost", "user", "localuser"})
"""Criteria with a value. paramiko takes every other one, but for `exec`, as met."""
_ONE_TOKEN: Final = re.compile(r"%.|~")


class RouteError(Exception):
    """The SSH configuration cannot be followed; the message names the cause."""


def _port_token(text: str) -> str:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"`Port {text}` is no port")
    return text


_CHECKS: Final[Mapping[str, Callable[[str], str]]] = {
    **dict.fromkeys(("%h", "%n", "%l", "%L"), address),
    **dict.fromkeys(("%r", "%u"), account),
    "%p": _port_token,
}
"""By token. The others (`%C`, `%d`, `~`) are made on this machine."""


class _Config(paramiko.SSHConfig):
    """Expands tokens strictly, and refuses a criterion of `Match` that is not supported where it decides."""

    def lookup(self, hostname: str) -> paramiko.SSHConfigDict:
        """The options of a host. Its name is not made canonical: `CanonicalizeHostname` is refused later."""
        options = self._lookup(hostname=hostname)  # type: ignore[attr-defined]
        options.setdefault("hostname", hostname)
        return self._lookup(hostname, options, canonical=False, final=True)  # type: ignore[attr-defined,no-any-return]

    def _expand_variables(self, config: Any, target_hostname: str) -> Any:
        # HostName first: `%h` of the other options is the expanded one, wherever the file has it.
        for key in sorted(config, key=lambda one: one != "hostname"):
            value = config[key]
            if isinstance(value, list):
                config[key] = [self._tokenize(config, target_hostname, key, one) for one in value]
            elif value is not None and (key, value) != ("hostname", target_hostname):
                config[key] = self._tokenize(config, target_hostname, key, value)
        return config

    def _tokenize(self, config: Any, target_hostname: str, key: str, value: str) -> str:
        if key == "match-exec":
            raise RouteError(
                f"the SSH configuration of {target_hostname} has `Match {value}`, which this program cannot"
                f" evaluate; {USE_OPENSSH}"
            )
        allowed = self._allowed_tokens(key)  # type: ignore[attr-defined]
        host = "" if key == "hostname" else "%h"  # of HostName itself, `%h` is the name that was given

        def replaced(found: re.Match[str]) -> str:
            token = found[0]
            if token not in allowed:
                return token.replace("%%", "%") if allowed else token
            if token in ("%h", "%n"):
                text = config.get("hostname", target_hostname) if token == host else target_hostname
            else:
                text = super(_Config, self)._tokenize(config, target_hostname, key, token)  # type: ignore[misc]
            return _CHECKS.get(token, str)(text)

        # Each token once: a value may have a percent sign, as `fe80::1%p1p1` has.
        return _ONE_TOKEN.sub(replaced, value)


def read_config(paths: Sequence[str]) -> paramiko.SSHConfig:
    """Read SSH client configurations, the first taking precedence; an absent file is an empty one.

    Raises:
        RouteError: one cannot be read or parsed.
    """
    texts = []
    for path in paths:
        try:
            file = _trusted(Path(path).expanduser())
            # Each file begins outside of any block of the one before.
            texts += ["Host *", _text(file, "Host *", depth=0)] if file.is_file() else []
        except (OSError, ValueError, RuntimeError) as error:
            raise RouteError(f"{path} cannot be read: {error}") from error
    try:
        return _Config.from_text("\n".join(texts))
    except (ValueError, paramiko.ConfigParseError) as error:
        raise RouteError(f"{' or '.join(paths)} cannot be read: {error}") from error


def _trusted(file: Path) -> Path:
    why = why_not(file)
    if why is not None:
        raise RouteError(f"SSH configuration {file}: {why}")
    return file


def _text(file: Path, block: str, *, depth: int) -> str:
    """A configuration file with its included files in place: paramiko skips `Include`.

    Args:
        file: the file.
        block: the `Host` or `Match` line above the `Include`.
        depth: of the inclusion.

    Raises:
        RouteError: an included file cannot be put in place.
    """
    if depth > MAX_INCLUDES:
        raise RouteError(f"{file}: included {MAX_INCLUDES} deep; does an Include go in circles?")
    conditional = block.split()[1:] not in (["*"], ["all"])
    folder = _SYSTEM if _SYSTEM in file.parents else Path("~/.ssh").expanduser()
    lines: list[str] = []
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if _BLOCK.match(line):
            if depth and conditional:
                # Both lines would have to match, which one text cannot express.
                raise RouteError(
                    f"{file}:{number}: `{line.strip()}` in a file that is included under `{block}`:"
                    f" move that Include to the top of its file; or {USE_OPENSSH}"
                )
            block = line.strip()
        include = _INCLUDE.match(line)
        if include is None:
            lines.append(_for_paramiko(line))
            continue
        for pattern in shlex.split(include[1], comments=True):
            place = folder / Path(pattern).expanduser()
            for found in sorted(glob(str(place))):  # noqa: PTH207  (Path.glob takes no absolute pattern)
                lines += [_text(_trusted(Path(found)), block, depth=depth + 1), _for_paramiko(block)]
    return "\n".join(lines)


def _for_paramiko(line: str) -> str:
    """A line as paramiko takes it.

    `Match final all` is `final`, and an unsupported criterion is its `exec`. `ProxyCommand none`, which
    paramiko forgets, is `ProxyJump none`: the first of the two keywords counts, so both forbid every proxy.
    """
    if _NO_PROXY.fullmatch(line):
        return "ProxyJump none"
    found = _MATCH.match(line)
    if found is None:
        return line
    words = shlex.split(found[1], comments=True)
    written: list[str] = []
    while words:
        word = words.pop(0)
        criterion = word.removeprefix("!").lower()
        if criterion in _ALONE:
            written += [word.lower()] if criterion != "all" or not (written or words) else []
            continue
        value = words.pop(0) if words else ""
        negation = "!" if word.startswith("!") else ""
        written += (
            [word.lower(), value] if criterion in _SUPPORTED else [f"{negation}exec", criterion.split("=")[0]]
        )
    return f"Match {shlex.join(written)}"


# The route ------------------------------------


DEFAULT_IDENTITIES: Final = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_USER_KNOWN_HOSTS: Final = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEM_KNOWN_HOSTS: Final = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"


MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One SSH server on the way, the target being the last."""

    alias: str  # as the cluster file or the ProxyJump line calls it
    host: str  # the address to connect to, as seen from the hop before
    port: int
    user: str
    key_names: tuple[str, ...]  # the names of the host in known hosts files
    identities: tuple[str, ...]  # key files to try
    identities_only: bool  # of an agent's keys, try only those in `identities`
    known_hosts: tuple[str, ...]
    use_agent: bool
    proxy_command: str | None = None  # a ProxyCommand that carries the connection; None = a plain one
    host_key_algorithms: str = ""  # `HostKeyAlgorithms`; empty = all
    least_rsa_bits: int = 0  # of an RSA key that the host shows
    unfollowed: Unfollowed = ()  # lines of the SSH configuration to report where their stage fails

    def __post_init__(self) -> None:
        """Refuse an invalid host or user, such as a HostName of the SSH configuration."""
        address(self.host)
        account(self.user)

    def __str__(self) -> str:
        """`user@host:port`, for messages."""
        return f"{self.user}@{self.host}:{self.port}"


Route = tuple[Hop, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """Values of one hop from outside the SSH configuration; they take precedence over it."""

    alias: str
    port: int | None = None
    user: str | None = None
    identities: tuple[str, ...] = ()
    known_hosts: tuple[str, ...] = ()
    use_agent: bool = True


def find_route(settings: HostSettings, config: paramiko.SSHConfig) -> Route:
    """All hops to a host, in the order in which they are connected.

    Raises:
        RouteError: a ProxyJump cannot be parsed, the hops form a cycle, or a host or user on the way is none.
    """
    given = _Given(
        alias=settings.address,
        port=settings.port,
        user=settings.user,
        identities=settings.identities,
        known_hosts=settings.known_hosts,
        use_agent=settings.use_agent,
    )
    return _route(given, config, depth=0)


def _route(given: _Given, config: paramiko.SSHConfig, *, depth: int) -> Route:
    if depth > MAX_JUMPS:
        raise RouteError(
            f"more than {MAX_JUMPS} jump hosts on the way by {given.alias}: does ProxyJump go in circles?"
        )
    options = _lookup(given.alias, config)
    hop = _hop(given, options)
    jumps = options.get("proxyjump")
    if jumps is None or jumps.lower() == "none" or hop.proxy_command is not None:
        return (hop,)
    before: Route = ()
    for spec in jumps.split(","):
        jump = _jump(spec.strip(), given)
        # As in ssh: the first of a chain is reached by its own configuration, each other one from its
        # predecessor.
        before = (
            (*before, _hop(jump, _lookup(jump.alias, config)))
            if before
            else _route(jump, config, depth=depth + 1)
        )
    return (*before, hop)


def _lookup(alias: str, config: paramiko.SSHConfig) -> paramiko.SSHConfigDict:
    try:
        return config.lookup(alias)
    except (paramiko.SSHException, ValueError, LookupError, OSError) as error:
        raise _not_followed(alias, error) from error


def _not_followed(alias: str, error: Exception) -> RouteError:
    return RouteError(f"the SSH configuration of {alias} cannot be followed: {error}")


def _port(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MAX_PORT):
        raise RouteError(f"{what} must be a port from 1 to {MAX_PORT}: correct it in the SSH configuration")
    return int(text)


def _hop(given: _Given, options: paramiko.SSHConfigDict) -> Hop:
    lines = unfollowed(options, own_known_hosts=bool(given.known_hosts))
    refused = [line for stage, line in lines if stage is Stage.BEFORE]
    if refused:
        raise RouteError(
            f"the SSH configuration of {given.alias} has `{'` and `'.join(refused)}`, which this program does"
            f" not follow; {USE_OPENSSH}"
        )
    host = str(options.get("hostname", given.alias))
    # As in ssh, the first of the two counts, also where it is `none`.
    proxy = next((key for key in options if key in ("proxycommand", "proxyjump")), "")
    command = options["proxycommand"] if proxy == "proxycommand" else None
    said = str(options.get("port", DEFAULT_PORT))
    port = given.port or _port(said, f"`Port {said}` of {given.alias}")
    files = (
        str(options.get("userknownhostsfile", _USER_KNOWN_HOSTS)),
        str(options.get("globalknownhostsfile", _SYSTEM_KNOWN_HOSTS)),
    )
    try:
        return Hop(
            alias=given.alias,
            host=host,
            port=port,
            user=given.user or str(options.get("user") or _own_name()),
            key_names=host_names(host, port, options.get("hostkeyalias")),
            identities=(*given.identities, *options.get("identityfile", ())) or DEFAULT_IDENTITIES,
            identities_only=str(options.get("identitiesonly", "no")).lower() in ("yes", "true"),
            known_hosts=given.known_hosts or tuple(" ".join(files).split()),
            use_agent=given.use_agent and str(options.get("identityagent", "")).lower() != "none",
            proxy_command=None if command is None else str(command),
            host_key_algorithms=str(options.get("hostkeyalgorithms", "")),
            least_rsa_bits=_bits(options),
            unfollowed=tuple((stage, line) for stage, line in lines if stage is not Stage.BEFORE),
        )
    except UntrustedValue as error:
        raise _not_followed(given.alias, error) from error


def _bits(options: paramiko.SSHConfigDict) -> int:
    said = str(options.get("requiredrsasize", options.get("rsaminsize", 0)))
    if not (said.isascii() and said.isdigit()):
        raise RouteError(f"`RequiredRSASize {said}` is no number: correct it in the SSH configuration")
    return int(said)


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (LookupError, OSError) as error:  # as in a container that runs under a number
        raise RouteError(f"this process's user has no name ({error}): set `hosts.user`") from error


def _jump(spec: str, target: _Given) -> _Given:
    """Read `[user@]host[:port]`; the cluster file's key files and known hosts apply to the jump host too."""
    try:
        user, host, port = split_jump(spec)
    except UntrustedValue as error:
        said = f"ProxyJump {shortened(spec)} of {target.alias} is not [user@]host[:port]"
        raise RouteError(f"{said}: {error}") from error
    return _Given(
        alias=host,
        port=_port(port, f"the port in ProxyJump {spec!r} of {target.alias}") if port else None,
        user=user or None,
        identities=target.identities,
        known_hosts=target.known_hosts,
        use_agent=target.use_agent,
    )
