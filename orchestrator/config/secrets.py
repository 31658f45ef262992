"""Secrets: references in files, resolved late, and protected against display or storage by accident.

A file holds `env:NAME`, `file:/path`, `command:…` or `keyring:service/user`, never the value. What is
resolved is a `Secret`: it prints as its reference, and refuses to be pickled, copied or serialised, so that
it can reach neither the journal nor a report. No message here holds a value, nor what a command printed.
"""

from __future__ import annotations

import importlib
import os
import re
import selectors
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NoReturn

from orchestrator import variables
from orchestrator.config.yaml import FilePlace
from orchestrator.errors import ConfigError, how_to_add

MAX_SECRET_BYTES: Final = 64 * 1024
"""Longer than any key or token; a larger file is the wrong one."""

COMMAND_SECONDS: Final = 30.0
"""A password store that needs input from a person is no use in an unattended run."""

FORMS: Final = "env:NAME, file:/path, command:… or keyring:service/user"

LITERAL: Final = f"a secret is never written here; write a reference to it: {FORMS}"


class Scheme(Enum):
    """The kind of place of a secret."""

    ENV = "env"
    FILE = "file"
    COMMAND = "command"
    KEYRING = "keyring"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """A reference to a secret in a file: the place of the secret, not its value.

    A variable that it names is passed on to no program, whether it is ever read or not.
    """

    scheme: Scheme
    argument: str  # the variable, the path, the command line or `service/user`
    place: FilePlace | None = None  # the place of the reference, if it is in a file

    def __post_init__(self) -> None:
        if self.scheme is Scheme.ENV:
            variables.hold_back(self.argument)

    def __str__(self) -> str:
        return f"{self.scheme.value}:{self.argument}"

    @property
    def shown(self) -> str:
        """The reference for messages; of a command line only the program, since the rest may hold tokens."""
        program, *more = self.argument.split() or [""]
        return f"{self.scheme.value}:{program} …" if self.scheme is Scheme.COMMAND and more else str(self)


def parse_reference(value: object, place: FilePlace | None = None) -> SecretReference:
    """Read a reference.

    Raises:
        ValueError: it is a literal secret, or a reference without its argument; the value is not repeated.
    """
    scheme, colon, argument = value.partition(":") if isinstance(value, str) else ("", "", "")
    known = next((known for known in Scheme if known.value == scheme), None)
    if known is None or not colon:
        raise ValueError(LITERAL)
    if not _fits(known, argument):
        raise ValueError(f"`{known.value}:` is not followed by what it needs; the forms are {FORMS}")
    return SecretReference(scheme=known, argument=argument, place=place)


def _fits(scheme: Scheme, argument: str) -> bool:
    match scheme:
        case Scheme.ENV:
            return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", argument) is not None
        case Scheme.FILE:
            return bool(argument.strip()) and argument.isprintable()
        case Scheme.COMMAND:
            return bool(_words(argument))
        case Scheme.KEYRING:
            service, _, user = argument.rpartition("/")
            return bool(service and user)


class Secret:
    """A secret's value. Only `reveal` shows it; every other way out is closed."""

    __slots__ = ("__value", "_origin")

    def __init__(self, value: str, *, origin: str) -> None:
        self.__value = value
        self._origin = origin

    def reveal(self) -> str:
        """The value; call it only to pass the value to a library, and do not store it."""
        return self.__value

    def __repr__(self) -> str:
        return f"Secret({self._origin})"

    def __str__(self) -> str:
        return f"<secret from {self._origin}>"

    def __format__(self, _spec: str) -> str:
        return str(self)

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be pickled, copied or serialised")


Command = Callable[[Sequence[str]], bytes]
"""Runs a command and returns its output. Raises OSError or subprocess.SubprocessError."""

Keyring = Callable[[str, str], str | None]
"""Looks up service and user in the desktop's key ring."""


def run_command(words: Sequence[str]) -> bytes:
    """Run a command without a shell and without a terminal's input, within `COMMAND_SECONDS`.

    If it prints more than any secret has, it is killed, and the output so far is returned.

    Raises:
        OSError: it cannot be run.
        subprocess.SubprocessError: it failed or did not end in time.
    """
    deadline = time.monotonic() + COMMAND_SECONDS
    with subprocess.Popen(  # noqa: S603  (the command line is the operator's own, from the file that the run obeys)
        list(words),
        env=variables.for_programs(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            printed = _read(process, deadline)
            if len(printed) > MAX_SECRET_BYTES:
                return printed
            code = process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            process.kill()  # has no effect if it has ended
    if code:
        raise subprocess.CalledProcessError(code, list(words))
    return printed


def _read(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """The output of a process until it closes it, at most one byte more than a secret may have.

    Raises:
        subprocess.TimeoutExpired: it did neither by the deadline, in monotonic seconds.
    """
    printed = b""
    with selectors.DefaultSelector() as selector:
        if process.stdout is None:
            return printed
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            data = os.read(process.stdout.fileno(), MAX_SECRET_BYTES + 1 - len(printed))
            printed += data
            if not data or len(printed) > MAX_SECRET_BYTES:
                return printed
    raise subprocess.TimeoutExpired(process.args, COMMAND_SECONDS)


def look_up_keyring(service: str, user: str) -> str | None:
    """Read the key ring through the optional package.

    Raises:
        ModuleNotFoundError: the `keyring` extra is not installed.
        Exception: the key ring cannot be opened; the package has no common class for that.
    """
    # Imported here because it is an optional extra: only references to a key ring need it.
    found: str | None = importlib.import_module("keyring").get_password(service, user)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretResolver:
    """Resolves references to secrets, again at each call: `resume` must see a rotated key."""

    environment: Mapping[str, str]  # the process's variables
    folder: Path  # start of relative paths of `file:`: the folder of the file that holds the reference
    home: Path  # the folder for `~`
    command: Command = run_command
    keyring: Keyring = look_up_keyring
    # called with every resolved value, so that it can be removed from output
    learn: Callable[[str], object] = field(default=lambda _value: None, repr=False)

    def resolve(self, reference: SecretReference, *, header: bool = False) -> Secret:
        """Fetch the secret.

        Args:
            reference: its place.
            header: it is sent unchanged in an HTTP header, so it must be ASCII.

        Raises:
            ConfigError: it is missing, empty or not one line; the message names the reference and its place.
        """
        value = self._fetch(reference).removesuffix("\n").removesuffix("\r")
        if not value:
            raise _fail(reference, "is empty")
        if not value.isprintable():
            # A line break in a header or a sudo password would fail only later, at its use.
            raise _fail(reference, "is not one line of printable text")
        if header and not value.isascii():
            raise _fail(reference, "holds characters outside ASCII, which no header of HTTP takes")
        self.learn(value)
        return Secret(value, origin=str(reference))

    def path(self, reference: SecretReference) -> Path | None:
        """The file of a `file:` reference; None for any other."""
        if reference.scheme is not Scheme.FILE:
            return None
        return expand(reference.argument, folder=self.folder, home=self.home)

    def _fetch(self, reference: SecretReference) -> str:
        match reference.scheme:
            case Scheme.ENV:
                return self._variable(reference)
            case Scheme.FILE:
                return self._file(reference)
            case Scheme.COMMAND:
                return self._command(reference)
            case Scheme.KEYRING:
                return self._keyring(reference)

    def _variable(self, reference: SecretReference) -> str:
        value = self.environment.get(reference.argument)
        if value is None:
            raise _fail(reference, f"the environment variable {reference.argument} is not set")
        return value

    def _file(self, reference: SecretReference) -> str:
        path = expand(reference.argument, folder=self.folder, home=self.home)
        try:
            with path.open("rb") as stream:
                content = stream.read(MAX_SECRET_BYTES + 1)
        except OSError as error:
            raise _fail(
                reference, f"{path} cannot be read: {error.strerror or type(error).__name__}"
            ) from None
        return _decode(reference, content)

    def _command(self, reference: SecretReference) -> str:
        try:
            content = self.command(_words(reference.argument))
        except subprocess.TimeoutExpired:
            raise _fail(reference, f"the command did not end within {COMMAND_SECONDS:g} s") from None
        except subprocess.CalledProcessError as error:
            # The output may hold the secret, so the message has only the exit code.
            message = f"the command ended with exit code {error.returncode}; run it by hand to see why"
            raise _fail(reference, message) from None
        except OSError as error:
            raise _fail(
                reference, f"the command cannot be run: {error.strerror or type(error).__name__}"
            ) from None
        return _decode(reference, content)

    def _keyring(self, reference: SecretReference) -> str:
        service, _, user = reference.argument.rpartition("/")
        try:
            value = self.keyring(service, user)
        except ModuleNotFoundError:
            raise _fail(reference, f"needs the extra `keyring`: {how_to_add('keyring')}") from None
        except Exception as error:  # noqa: BLE001  (a locked key ring, and each backend, has errors of its own)
            raise _fail(reference, f"the key ring cannot be opened ({type(error).__name__})") from None
        if value is None:
            raise _fail(reference, f"the key ring holds nothing for service {service}, user {user}")
        return value


class Source:
    """The source of a secret that may change while the program runs.

    Args:
        resolver: reads it.
        reference: not of an environment variable: those of a running program cannot change.
        header: as for `SecretResolver.resolve`.
    """

    def __init__(self, resolver: SecretResolver, reference: SecretReference, *, header: bool = False) -> None:
        self._resolver, self._reference, self._header = resolver, reference, header
        self._mark = self._seen()

    def touched(self) -> bool:
        """Whether its file has changed since it was last read; False for a source that is no file."""
        return self._seen() != self._mark

    def read(self) -> str | None:
        """The present value; None if it cannot be read."""
        self._mark = self._seen()
        try:
            return self._resolver.resolve(self._reference, header=self._header).reveal()
        except ConfigError:
            return None

    def _seen(self) -> tuple[int, ...] | None:
        path = self._resolver.path(self._reference)
        try:
            found = None if path is None else path.stat()
        except OSError:
            return None
        return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


def expand(path: str, *, folder: Path, home: Path) -> Path:
    """A path in a file: `~` is the home folder, and a relative path starts at the file's own folder."""
    if path == "~" or path.startswith("~/"):
        return home / path[2:]
    return folder / path


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _decode(reference: SecretReference, content: bytes) -> str:
    if len(content) > MAX_SECRET_BYTES:
        raise _fail(reference, f"holds more than {MAX_SECRET_BYTES // 1024} KiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _fail(reference, "is not UTF-8 text") from None


def _fail(reference: SecretReference, message: str) -> ConfigError:
    place = reference.place
    shown = f"secret {reference.shown}: {message}"
    if place is None:
        return ConfigError(shown)
    return ConfigError(shown, file=place.file, line=place.line, key=place.key)
