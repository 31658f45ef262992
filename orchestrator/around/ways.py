"""How one message is sent: as a webhook, as mail, by Apprise, or to a command on its standard input.

No text here holds a URL: its user, path and query may be secrets.
"""

from __future__ import annotations

import io
import json
import logging
import shlex
import smtplib
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from orchestrator.around.outbox import Send
from orchestrator.around.story import Message
from orchestrator.around.web import ANSWER_BYTES, NotSent, ask, tls_of
from orchestrator.bounded_http import basic, is_plain
from orchestrator.config.around import (
    MAIL,
    PLACEHOLDER,
    WEB,
    Around,
    AroundHook,
    MessageTarget,
    check_target,
    scheme_of,
    sender_and_receivers,
)
from orchestrator.config.secrets import SecretReference
from orchestrator.errors import ConfigError, UsageError, how_to_add
from orchestrator.redact import cleaned
from orchestrator.untrusted import one_line

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SUBMISSION: Final = {"smtp": 587, "smtps": 465}

MISSING: Final = (
    "its scheme is sent by Apprise, in the extra `notify`, which is not installed: use https:// or smtps://,"
    f" or {how_to_add('notify')}"
)

RunCommand = Callable[[str, str, float], str | None]
"""Runs a command line with a text on its standard input, within seconds. Returns why it failed, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What messages need of the program and of the run."""

    # the value of a reference; raises `ConfigError`, whose text holds no value
    resolve: Callable[[SecretReference], str]
    learn: Callable[[str], object] = field(repr=False)  # takes a secret that is known from now on
    redact: Callable[[str], str]  # removes secrets from a text
    run_command: RunCommand  # for hooks
    cluster: str  # its name
    run: str  # its id

    def secret(self, reference: SecretReference) -> str:
        """The value of a reference, for a request. Raises `NotSent`."""
        try:
            return self.resolve(reference)
        except ConfigError as error:
            raise NotSent(str(error)) from None

    def body(self, message: Message, text: str) -> dict[str, object]:
        """The JSON object of a message."""
        about = {"on": str(message.on), "text": text, "cluster": self.cluster, "run": self.run}
        found: dict[str, object] = cleaned({**about, "event": message.line}, self.redact)
        return found


def require_usable(around: Around, context: RunContext) -> None:
    """See that every message can be sent by this installation.

    Raises:
        ConfigError: a secret is not there.
        UsageError: a URL cannot be used, or needs Apprise, which is not installed.
    """
    for reference in around.references:
        context.resolve(reference)
    for target in around.targets:
        try:
            to = _resolved(target, context)
        except ValueError as error:
            raise UsageError(f"notify {target.name}: {error}") from None
        if scheme_of(to.url) not in (*WEB, *MAIL) and find_spec("apprise") is None:
            raise UsageError(f"notify {target.name}: {MISSING}")


def sends(target: MessageTarget, context: RunContext) -> Send:
    """What sends messages to a target. References are resolved for each message: a secret may change."""

    def send(message: Message, seconds: float) -> None:
        try:
            to = _resolved(target, context)
        except (ConfigError, ValueError) as error:
            # It holds no value; `redact` would take its file and line for one.
            raise NotSent(str(error)) from None
        text = _filled(target.text, message, context)
        try:
            if scheme_of(to.url) in WEB:
                _post(to, context.body(message, text), seconds)
            elif scheme_of(to.url) in MAIL:
                _mail(to, _letter(to.url, message, text, context), seconds)
            else:
                _by_apprise(to.url, _subject(context), text)
        except NotSent as error:
            raise NotSent(one_line(context.redact(str(error))), again=error.again) from None

    return send


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolved:
    """A target with its secrets."""

    target: MessageTarget
    url: str = field(repr=False)
    password: str | None = field(repr=False)
    bearer: str | None = field(repr=False)


def _resolved(target: MessageTarget, context: RunContext) -> _Resolved:
    """Look its secrets up. Raises `ConfigError`, or `ValueError` where the URL cannot be used."""
    url = check_target(target.url if isinstance(target.url, str) else context.resolve(target.url))
    context.learn(unquote(urlsplit(url).password or ""))
    return _Resolved(
        target=target,
        url=url,
        password=context.resolve(target.password) if target.password else None,
        bearer=context.resolve(target.bearer) if target.bearer else None,
    )


def runs(hook: AroundHook, context: RunContext) -> Send:
    """What gives messages to a hook of the run."""

    def send(message: Message, seconds: float) -> None:
        given = json.dumps(cleaned(message.line, context.redact), allow_nan=False)
        line = f"cd {shlex.quote(hook.folder)} && {{ {hook.run}\n}}"
        why = context.run_command(line, given, seconds)
        if why is not None:
            raise NotSent(one_line(context.redact(why)))

    return send


def _filled(template: str, message: Message, context: RunContext) -> str:
    words = {"cluster": context.cluster, "run": context.run, "on": str(message.on), "text": message.text}
    # In one pass: a value that looks like a placeholder stays.
    return context.redact(PLACEHOLDER.sub(lambda found: words[found[1]], template))


def _post(to: _Resolved, body: Mapping[str, object], seconds: float) -> None:
    parts = urlsplit(to.url)
    headers: dict[str, str] = {}
    if to.bearer is not None:
        headers["Authorization"] = f"Bearer {to.bearer}"
    elif parts.username:
        login = f"{unquote(parts.username)}:{to.password or unquote(parts.password or '')}"
        headers["Authorization"] = basic(login)
    plain = to.url.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1)
    ask(
        "POST",
        plain,
        headers=headers,
        body=body,
        trust=to.target,
        seconds=seconds,
    )


def _subject(context: RunContext) -> str:
    """One subject for all mails of a run: some programs make a thread of equal subjects alone."""
    return one_line(context.redact(f"{context.cluster}: run {context.run}"), 120)


def _letter(url: str, message: Message, text: str, context: RunContext) -> EmailMessage:
    """The mail. Its id is that of the message, so a second copy can be recognised; all refer to the run's."""
    sender, receivers = sender_and_receivers(url)
    place = sender.rpartition("@")[2].strip("<> ") or "orchestrate"
    run = one_line(context.redact(context.run))
    thread = f"<{run}@{place}>"
    letter = EmailMessage()
    letter["From"], letter["To"] = sender, ", ".join(receivers)
    letter["Subject"], letter["Date"] = _subject(context), formatdate(localtime=True)
    letter["Message-ID"] = f"<{run}.{message.of}.{message.on}@{place}>"
    letter["In-Reply-To"] = letter["References"] = thread
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(f"{text}\n\n{message.on}, run {run}\n")
    return letter


def _mail(to: _Resolved, letter: EmailMessage, seconds: float) -> None:
    parts = urlsplit(to.url)
    host, port = parts.hostname or "", parts.port or _SUBMISSION[parts.scheme]
    tls = tls_of(to.target)
    server = _SecureServer(seconds, context=tls) if parts.scheme == "smtps" else _Server(seconds)
    sent = False
    try:
        server.connect(host, port)
        _log_in(server, parts, to.password, tls)
        sent = True
        refused = server.send_message(letter)
    except NotSent:
        raise
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error
        words = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise NotSent(f"{error.smtp_code} {words}") from None
    except smtplib.SMTPRecipientsRefused as error:
        raise NotSent(f"refused for {', '.join(map(str, error.recipients))}") from None
    except ssl.SSLError as error:
        why = error.reason or type(error).__name__
        plain = "it does not speak TLS: is it smtp:// there?"
        raise NotSent(plain if is_plain(why) else f"TLS: {why}") from None
    except (OSError, smtplib.SMTPException, ValueError) as error:
        again = isinstance(error, ConnectionRefusedError) and not sent
        raise NotSent(_fault_of_mail(error, seconds), again=again) from None
    finally:
        server.close()
    if refused:
        raise NotSent(f"refused for {', '.join(refused)}; others have it")


class _Replies(io.RawIOBase):
    """What a mail server says. Each read has what is left of one deadline, and all of them one limit.

    The library limits the silence between two reads and the length of a line alone.
    """

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock, self._until, self._most = sock, until, ANSWER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if self._most <= 0:
            raise NotSent(f"the answer is larger than {ANSWER_BYTES} bytes")
        self._sock.settimeout(left)
        count = self._sock.recv_into(buffer)
        self._most -= count
        return count


class _Server(smtplib.SMTP):
    """A mail server that is not trusted: it has so many seconds in all."""

    def __init__(self, seconds: float, **more: Any) -> None:
        self._until = time.monotonic() + seconds
        super().__init__(timeout=seconds, **more)

    def connect(self, host: str = "localhost", port: int = 0, *more: Any) -> tuple[int, bytes]:
        """Connect, and read the greeting."""
        self._host = host  # TLS checks this name
        return super().connect(host, port, *more)

    def getreply(self) -> tuple[int, bytes]:
        """The next answer."""
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(_Replies(self.sock, self._until))
        return super().getreply()


class _SecureServer(_Server, smtplib.SMTP_SSL):
    """The same with TLS from the first byte."""


def _log_in(server: smtplib.SMTP, parts: SplitResult, password: str | None, tls: ssl.SSLContext) -> None:
    """Encrypt where the server can, and log in where there is a password, which is sent encrypted alone."""
    server.ehlo_or_helo_if_needed()
    encrypted = parts.scheme == "smtps"
    if not encrypted and server.has_extn("starttls"):
        server.starttls(context=tls)
        server.ehlo()
        encrypted = True
    secret = password or unquote(parts.password or "")
    if not secret:
        return
    if not encrypted and parts.hostname not in _LOOPBACK:
        raise NotSent("it offers no encryption, and the password is not sent without it: use smtps://")
    server.login(unquote(parts.username or ""), secret)


def _fault_of_mail(error: Exception, seconds: float) -> str:
    match error:
        case TimeoutError() | smtplib.SMTPServerDisconnected():
            return f"no answer within {seconds:g} s, or it closed the connection"
        case ConnectionRefusedError():
            return "connection refused"
        case OSError():
            return f"connection failed: {error.strerror or type(error).__name__}"
        case _:
            return f"it cannot be sent ({type(error).__name__})"


def _by_apprise(url: str, title: str, text: str) -> None:
    # Imported here because it is an optional extra that takes half a second.
    try:
        apprise = import_module("apprise")
    except ModuleNotFoundError:
        raise NotSent(MISSING) from None
    # It logs URLs; a redirect would take a token along.
    logging.getLogger("apprise").disabled = True
    asset = apprise.AppriseAsset(http_redirects=False, async_mode=False, app_id="orchestrate")
    sender = apprise.Apprise(asset=asset)
    if not sender.add(url):
        raise NotSent("Apprise does not know this URL; a webhook begins with https://, mail with smtps://")
    if not sender.notify(body=text, title=title):
        raise NotSent("Apprise could not deliver it")
