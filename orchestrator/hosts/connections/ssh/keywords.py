"""Which keywords of the SSH client configuration this program follows, and which need `ssh` itself. Pure.

Each keyword has a place in one table. One that is not there, as of a newer OpenSSH, is refused before
anything is sent: it may decide which host is reached, or which key is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final


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
