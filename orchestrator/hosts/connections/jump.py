"""ProxyJump, as the SSH client configuration writes it. Pure."""

from __future__ import annotations

from typing import Final

from orchestrator.untrusted import account, address

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
