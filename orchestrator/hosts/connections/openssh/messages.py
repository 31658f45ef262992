"""What `ssh` says when it cannot connect, and what to do. Pure."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.hosts.connection import Trouble
from orchestrator.redact import end_of

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
