"""The SSH client configuration, as `ssh` reads it: the user's file, then the system's, each with includes.

The first value of an option counts, so the user's file takes precedence. paramiko matches. What it does not
do (`Include`) or does wrongly (`Match final all`, unknown criteria, `ProxyCommand none`) is arranged here
first. Tokens (`%h`) are expanded here, and only to values that remain one word in the command line of a
ProxyCommand.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any, Final

import paramiko

from orchestrator.owners import why_not
from orchestrator.untrusted import account, address

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
_TOKEN: Final = re.compile(r"%.|~")


class RouteError(Exception):
    """The SSH configuration cannot be followed; the message names the cause."""


def _port(text: str) -> str:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"`Port {text}` is no port")
    return text


_CHECKS: Final[Mapping[str, Callable[[str], str]]] = {
    **dict.fromkeys(("%h", "%n", "%l", "%L"), address),
    **dict.fromkeys(("%r", "%u"), account),
    "%p": _port,
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
        return _TOKEN.sub(replaced, value)


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
