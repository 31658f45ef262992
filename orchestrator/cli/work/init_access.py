"""How `init` reaches the cluster: TLS, trust and login, with questions about what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import typer

from orchestrator.cli.context import Context
from orchestrator.cli.prompts import agreed, has_terminal
from orchestrator.config.draft import UNNAMED, Draft, checked
from orchestrator.config.secrets import FORMS, SecretResolver, parse_reference
from orchestrator.errors import ConfigError, UsageError
from orchestrator.runs.first_file import Discovery
from orchestrator.stores.elasticsearch.certificate import shown_certificate
from orchestrator.stores.elasticsearch.connection import Server
from orchestrator.stores.elasticsearch.faults import Fault
from orchestrator.tls import broken
from orchestrator.untrusted import visible

_UNAUTHORIZED: Final = 401
_PLAIN: Final = "http://"
_OPTIONS: Final = {
    rf"^{UNNAMED}(?::\d+)?: ": "",
    r"endpoints(?:\[\d+\]|\.\d+)": "--endpoint",
    r" of `auth`": "",
    r"set `tls\.ca`": "give --ca",
    r"`?auth\.basic\.username`?": "--username",
    r"`?auth\.basic\.password`?": "--password",
    r"`?auth\.api_key`?": "--api-key",
    r"`?tls\.ca`?(?![\w.])": "--ca",
    r"`?tls\.fingerprint`?": "--fingerprint",
    r"set `tls\.strict: false`": "give --no-strict",
    r"`hosts\.connect: (\w+)`": r"`--connect \1`",
    r"set `hosts\.identity`": "give --identity",
    r"`?hosts\.user`?": "--ssh-user",
    r"`?hosts\.port`?": "--ssh-port",
    r"`?hosts\.identity`?": "--identity",
    r"`?hosts\.known_hosts`?": "--known-hosts",
    r"`?hosts\.service\.unit`?": "--unit",
}
"""Keys of the file in messages, and the options that set them: the file is not there yet."""


def in_options(message: str) -> str:
    """A message about the new file, with options in place of keys."""
    for key, option in _OPTIONS.items():
        message = re.sub(key, option, message, flags=re.MULTILINE)
    return message


@contextmanager
def naming_options() -> Iterator[None]:
    """Report faults of the new file by the options that set its keys.

    Raises:
        UsageError: the program would refuse the file.
    """
    try:
        yield
    except ConfigError as error:
        raise UsageError(in_options(str(error))) from error


def connected(draft: Draft, path: Path, context: Context, *, typed: bool) -> tuple[Discovery, Draft]:
    """The way to the cluster, and the draft with the trust and the credentials that it takes.

    Args:
        draft: with one endpoint.
        path: place of the new file.
        context: the process.
        typed: no option names credentials, so refused ones can be typed again.

    Raises:
        UsageError: it is not reached.
        typer.Abort: a question was not answered.
    """
    draft = _over_tls(draft, path, context)
    warned: set[str] = set()
    while True:
        discovery = _discovery(draft, path, context, warned)
        try:
            outcome = discovery.server()
            if isinstance(outcome, Server):
                return discovery, draft
            draft = _improved(draft, outcome, path, context, typed=typed)
        except BaseException:
            discovery.close()
            raise
        discovery.close()


def _discovery(draft: Draft, path: Path, context: Context, warned: set[str]) -> Discovery:
    with naming_options():
        file = checked(draft, path=path, home=context.home)
        for said in map(in_options, file.warnings):
            if said not in warned:
                warned.add(said)
                context.warn(said)
        return Discovery(file, context.files, context.clock)


def _over_tls(draft: Draft, path: Path, context: Context) -> Draft:
    """The draft with https:// if its http:// endpoint is a TLS port. No credential is sent to find out.

    Raises:
        UsageError: it is a TLS port, and there is no terminal to ask on; or it is not reached.
    """
    url = draft.endpoints[0]
    if not url.startswith(_PLAIN):
        return draft
    bare = replace(draft, api_key=None, username=None, password=None, ca=None, fingerprint=None)
    with closing(_discovery(bare, path, context, set())) as discovery:
        outcome = discovery.server()
    if isinstance(outcome, Server) or outcome.status is not None:
        return draft
    secure = f"https://{url.removeprefix(_PLAIN)}"
    try:
        shown_certificate(secure)
    except (OSError, ValueError):
        raise UsageError(outcome.reason) from None
    said = f"{url} is a TLS port and does not answer plain HTTP"
    if not has_terminal(context):
        raise UsageError(f"{said}: try --endpoint {secure}")
    context.note(said)
    if not agreed(f"Use {secure}?", context):
        raise UsageError(f"{said}: nothing is written")
    return replace(draft, endpoints=(secure,))


def _improved(draft: Draft, fault: Fault, path: Path, context: Context, *, typed: bool) -> Draft:
    """The draft with an answer to what the cluster refused.

    Raises:
        UsageError: there is none, or no terminal to ask on.
    """
    if fault.malformed or (fault.untrusted and draft.ca is None):
        return _with_trust(draft, fault, path, context)
    first = draft.username is None and draft.api_key is None
    if fault.status == _UNAUTHORIZED and typed and (first or has_terminal(context)):
        return _with_login(draft, fault, path, context)
    raise UsageError(in_options(fault.reason))


def _with_trust(draft: Draft, fault: Fault, path: Path, context: Context) -> Draft:
    """The draft with the authority that is to be trusted, its form accepted, or the certificate itself.

    Raises:
        UsageError: it is not trusted, or there is no terminal to ask on.
    """
    url = draft.endpoints[0]
    try:
        found = shown_certificate(url)
    except (OSError, ValueError) as error:
        raise UsageError(f"the certificate of {url} is not trusted, and cannot be shown: {error}") from None
    refused = f"the certificate of {url} is not signed by an authority that is trusted here"
    remedy = "Give the authority with --ca FILE"
    if fault.malformed:
        refused = f"the certificate of {url}, or that of its authority, {broken(fault.malformed)}"
        remedy = "Issue a new one, accept such certificates of trusted authorities with --no-strict"
    if not has_terminal(context):
        raise UsageError(
            f"{refused} (subject {found.subject}, issuer {found.issuer}, valid"
            f" {found.validity}, SHA-256 {found.fingerprint}). {remedy}, or compare"
            " the fingerprint with that of the node and give --fingerprint SHA256"
        )
    context.note(f"{refused}:")
    rows = {"subject": found.subject, "issuer": found.issuer, "valid": found.validity}
    for name, value in {**rows, "SHA-256": found.fingerprint}.items():
        context.note(f"  {name:<8} {value or '(none)'}")
    if not fault.malformed:
        question = "File of the authority's certificates [none: trust this certificate alone]"
        answer = file_answer(question, path, context)
        if answer:
            return replace(draft, ca=answer)
    elif agreed(
        "Accept certificates of trusted authorities that break such rules (`tls.strict: false`)?", context
    ):
        return replace(draft, strict=False)
    context.note("Other certificates are then refused: those of other nodes, and this one renewed.")
    if not agreed("Is this the SHA-256 fingerprint of the node's certificate?", context):
        raise UsageError(f"the certificate of {url} is not trusted: nothing is written")
    return replace(draft, ca=None, fingerprint=found.fingerprint)


def _with_login(draft: Draft, fault: Fault, path: Path, context: Context) -> Draft:
    """The draft with user and password, or an API key, by reference.

    Raises:
        UsageError: there is no terminal to ask on.
    """
    if not has_terminal(context):
        raise UsageError(
            f"{fault.reason}. Give --username USER and --password REFERENCE, or --api-key REFERENCE ({FORMS})"
        )
    context.note(fault.reason)
    draft = replace(draft, username=None, password=None, api_key=None)
    username = answered("User [none: an API key]", context)
    if not username:
        return replace(draft, api_key=asked_reference("Where the API key is", "--api-key", path, context))
    question = f"Where the password of {username} is"
    password = asked_reference(question, "--password", path, context)
    return replace(draft, username=username, password=password)


def require_reference(option: str, reference: str | None) -> None:
    """Refuse a secret in the place of its reference; it is not repeated.

    Raises:
        UsageError: it is none.
    """
    if reference is None:
        return
    try:
        parse_reference(reference)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def asked_reference(question: str, option: str, path: Path, context: Context) -> str:
    """Ask for the reference of a secret until a secret is found there.

    Raises:
        typer.Abort: Ctrl-C.
    """
    resolver = SecretResolver(environment=context.environment, folder=path.parent, home=context.home)
    while True:
        answer = answered(f"{question} ({FORMS})", context)
        try:
            require_reference(option, answer)
            resolver.resolve(parse_reference(answer))
        except UsageError as error:
            context.note(*error.lines)
        except ConfigError as error:
            context.note(f"{option}: {error}. Name another place, or end with Ctrl-C and provide it first")
        else:
            return answer


def answered(question: str, context: Context) -> str:
    """Ask for a text, which may be empty.

    Raises:
        typer.Abort: Ctrl-C.
    """
    prompt: Callable[..., str] = typer.prompt
    try:
        return prompt(visible(question), default="", show_default=False).strip()
    except typer.Abort:
        context.note("")  # the terminal prints `^C` on the line of the question
        raise


def file_answer(question: str, path: Path, context: Context) -> str | None:
    """Ask for a file of this machine, as the new file at `path` names it; None without one.

    Raises:
        typer.Abort: Ctrl-C.
    """
    while answer := answered(question, context):
        if Path(answer).expanduser().is_file():
            return as_written(Path(answer), path, context.home)
        context.note(f"{answer}: there is no such file")
    return None


def as_written(file: Path, path: Path, home: Path) -> str:
    """A path of this machine as the cluster file names it: relative paths start at its folder there."""
    absolute, folder = file.expanduser().absolute(), path.absolute().parent
    if absolute.is_relative_to(folder):
        return str(absolute.relative_to(folder))
    return f"~/{absolute.relative_to(home)}" if absolute.is_relative_to(home) else str(absolute)
