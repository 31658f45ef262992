"""A cluster file from a running cluster: questions, the reading, and one new file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import typer

from orchestrator.cli.commands.init import Given
from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import agreed, has_terminal
from orchestrator.config.draft import Draft, HostsDraft, checked, cluster_text, require_free, write_new
from orchestrator.config.lookup import folder_of_new, is_path, place_of_new
from orchestrator.config.reaching import check_endpoint
from orchestrator.config.secrets import FORMS, parse_reference
from orchestrator.errors import ConfigError, ExitCode, UsageError
from orchestrator.hosts.find_service import FoundService
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runs.discovery import Discovery, Found
from orchestrator.runs.drafting import product, with_cluster, with_reasons, with_services
from orchestrator.stores.elasticsearch.certificate import shown_certificate
from orchestrator.stores.elasticsearch.connection import Server
from orchestrator.stores.elasticsearch.faults import Fault
from orchestrator.view.text import counted, listed, visible

_UNAUTHORIZED: Final = 401
_NO_SSH_USER: Final = "as ~/.ssh/config says"


def refuse_riak() -> NoReturn:
    """Riak's cluster file is short, and no endpoint shows it.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "init --kind riak: no cluster file is written for Riak. Copy configs/clusters/riak-example.yml;"
        " docs/how-to/restart-riak.md explains its keys"
    )


def write_cluster_file(given: Given, *, output: Output) -> int:
    """Read the cluster and write its file; the exit code.

    Raises:
        UsageError: an option is wrong or missing, or the cluster cannot be read.
        ConfigError: the file cannot be written, or something that it would name cannot be used.
        typer.Abort: a question was not answered.
    """
    context = context_of(output)
    _require_sense(given)
    _require_url(given.endpoint)
    path = _place(given.cluster, given.out, context)
    draft = _first_draft(given, path, context)
    discovery, draft = _connected(draft, path, context)
    try:
        found = discovery.read()
        context.note(f"found: {found.view.name}, {product(found)}, {counted(len(found.view.nodes), 'node')}")
        draft = with_cluster(draft, found)
        if given.cluster is None and given.out is None:
            path = _named(found.view.name, context)
        draft = _with_ssh_user(draft, given, context)
        services: Mapping[NodeName, Reading[FoundService]] = {}
        if given.ssh:
            context.note("looking on the hosts for the service of each node")
            services = discovery.services(checked(draft, path=path, home=context.home), found.view)
        draft = with_services(draft, services, found.view.distribution)
    finally:
        discovery.close()
    checked(draft, path=path, home=context.home)  # the program takes what it has written
    write_new(path, cluster_text(draft))
    return _end(path, given, found, services, context)


def _require_sense(given: Given) -> None:
    """Refuse options that contradict each other.

    Raises:
        UsageError: they do.
    """
    apart = (
        ("--cluster", given.cluster, "--out", given.out),
        ("--ca", given.ca, "--fingerprint", given.fingerprint),
        ("--api-key", given.api_key, "--username", given.username),
        ("--api-key", given.api_key, "--password", given.password),
    )
    for one, first, other, second in apart:
        if first is not None and second is not None:
            raise UsageError(f"{one} and {other} exclude each other: give one of them")
    if given.password is not None and given.username is None:
        raise UsageError("--password needs --username")
    for option, reference in (("--password", given.password), ("--api-key", given.api_key)):
        _require_reference(option, reference)


def _require_reference(option: str, reference: str | None) -> None:
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


def _require_url(endpoint: str) -> None:
    """Refuse an address that a cluster file does not take; it is not repeated, as it may hold a password.

    Raises:
        UsageError: it is none.
    """
    try:
        check_endpoint(
            endpoint, example="https://es1:9200", ports="443 nor 9200", login="give --username and --password"
        )
    except ValueError as error:
        raise UsageError(f"--endpoint: {error}") from None


def _place(name: str | None, out: Path | None, context: Context) -> Path:
    """Where the file goes; without a name yet, a file in the same folder.

    Raises:
        ConfigError: it cannot be written there.
    """
    places = context.files.places
    path = out or (folder_of_new(places) / "new.yml" if name is None else place_of_new(name, places))
    if out is not None or name is not None:
        require_free(path)
    else:
        require_free(path.with_name(f".{path.name}"))  # the folder counts: the name is still to come
    return path


def _named(name: str, context: Context) -> Path:
    """Where the file of a cluster of that name goes; on a terminal another name can be given.

    Raises:
        ConfigError: it cannot be written there.
        typer.Abort: Ctrl-C.
    """
    if not has_terminal(context):
        return _place(name, None, context)
    while True:
        answer = _answer(f"Name of the file, for --cluster [{visible(name)}]", context) or name
        try:
            return _place(answer, None, context)
        except ConfigError as error:
            context.note(str(error))


def _first_draft(given: Given, path: Path, context: Context) -> Draft:
    password = given.password
    if given.username is not None and password is None:
        if not has_terminal(context):
            raise UsageError(f"--username needs --password REFERENCE ({FORMS})")
        password = _reference(f"Where the password of {visible(given.username)} is", "--password", context)

    def local(file: Path | None) -> str | None:
        return None if file is None else _as_written(file, path, context.home)

    return Draft(
        name=given.cluster or "new",
        endpoints=(given.endpoint,),
        api_key=given.api_key,
        username=given.username,
        password=password,
        ca=local(given.ca),
        fingerprint=given.fingerprint,
        hosts=HostsDraft(
            user=given.ssh_user,
            port=given.ssh_port,
            identity=local(given.identity),
            known_hosts=local(given.known_hosts),
        ),
    )


def _as_written(file: Path, path: Path, home: Path) -> str:
    """A path of this machine as the cluster file names it: relative paths start at its folder there."""
    absolute, folder = file.expanduser().absolute(), path.absolute().parent
    if absolute.is_relative_to(folder):
        return str(absolute.relative_to(folder))
    return f"~/{absolute.relative_to(home)}" if absolute.is_relative_to(home) else str(absolute)


def _connected(draft: Draft, path: Path, context: Context) -> tuple[Discovery, Draft]:
    """The way to the cluster, and the draft with the trust and the credentials that it takes.

    Raises:
        UsageError: it is not reached.
    """
    warned: set[str] = set()
    while True:
        file = checked(draft, path=path, home=context.home)
        for warning in file.warnings:
            if (said := warning.partition(": ")[2]) not in warned:
                warned.add(said)
                context.warn(said)
        discovery = Discovery(file, context.files, context.clock)
        try:
            outcome = discovery.server()
            if isinstance(outcome, Server):
                return discovery, draft
            draft = _improved(draft, outcome, path, context)
        except BaseException:
            discovery.close()
            raise
        discovery.close()


def _improved(draft: Draft, fault: Fault, path: Path, context: Context) -> Draft:
    """The draft with an answer to what the cluster refused.

    Raises:
        UsageError: there is none, or no terminal to ask on.
    """
    if fault.untrusted and draft.ca is None:
        return _with_trust(draft, path, context)
    if fault.status == _UNAUTHORIZED and draft.username is None and draft.api_key is None:
        return _with_login(draft, fault, context)
    said = fault.reason.replace("`tls.fingerprint`", "--fingerprint").replace("set `tls.ca`", "see --ca")
    raise UsageError(said)


def _with_trust(draft: Draft, path: Path, context: Context) -> Draft:
    """The draft with the authority that is to be trusted, or with the certificate itself.

    Raises:
        UsageError: it is not trusted, or there is no terminal to ask on.
    """
    url = draft.endpoints[0]
    try:
        found = shown_certificate(url)
    except (OSError, ValueError) as error:
        raise UsageError(f"the certificate of {url} is not trusted, and cannot be shown: {error}") from None
    untrusted = f"the certificate of {url} is not signed by an authority that is trusted here"
    if not has_terminal(context):
        raise UsageError(
            f"{untrusted} (subject {visible(found.subject)}, issuer {visible(found.issuer)}, valid"
            f" {found.validity}, SHA-256 {found.fingerprint}). Give the authority with --ca FILE, or compare"
            " the fingerprint with that of the node and give --fingerprint SHA256"
        )
    context.note(f"{untrusted}:")
    rows = {"subject": found.subject, "issuer": found.issuer, "valid": found.validity}
    for name, value in {**rows, "SHA-256": found.fingerprint}.items():
        context.note(f"  {name:<8} {visible(value) or '(none)'}")
    answer = _answer("File of the authority's certificates [none: trust this certificate alone]", context)
    if answer:
        return replace(draft, ca=_as_written(Path(answer), path, context.home))
    context.note("Other certificates are then refused: those of other nodes, and this one renewed.")
    if not agreed("Is this the SHA-256 fingerprint of the node's certificate?", context):
        raise UsageError(f"the certificate of {url} is not trusted: nothing is written")
    return replace(draft, fingerprint=found.fingerprint)


def _with_login(draft: Draft, fault: Fault, context: Context) -> Draft:
    """The draft with user and password, or an API key, by reference.

    Raises:
        UsageError: there is no terminal to ask on.
    """
    if not has_terminal(context):
        raise UsageError(
            f"{fault.reason}. Give --username USER and --password REFERENCE, or --api-key REFERENCE ({FORMS})"
        )
    context.note(f"{draft.endpoints[0]} asks for credentials")
    username = _answer("User [none: an API key]", context)
    if not username:
        return replace(draft, api_key=_reference("Where the API key is", "--api-key", context))
    password = _reference(f"Where the password of {visible(username)} is", "--password", context)
    return replace(draft, username=username, password=password)


def _with_ssh_user(draft: Draft, given: Given, context: Context) -> Draft:
    if given.ssh_user is not None or not given.ssh or not has_terminal(context):
        return draft
    answer = _answer(f"SSH user of the hosts [{_NO_SSH_USER}]", context)
    return replace(draft, hosts=replace(draft.hosts, user=answer or None))


def _reference(question: str, option: str, context: Context) -> str:
    """Ask for the reference of a secret until it is one.

    Raises:
        typer.Abort: Ctrl-C.
    """
    while True:
        answer = _answer(f"{question} ({FORMS})", context)
        try:
            _require_reference(option, answer)
        except UsageError as error:
            context.note(str(error))
        else:
            return answer


def _answer(question: str, context: Context) -> str:
    """Ask for a text, which may be empty.

    Raises:
        typer.Abort: Ctrl-C.
    """
    prompt: Callable[..., str] = typer.prompt
    try:
        return prompt(question, default="", show_default=False).strip()
    except typer.Abort:
        context.note("")  # the terminal prints `^C` on the line of the question
        raise


def _end(
    path: Path,
    given: Given,
    found: Found,
    services: Mapping[NodeName, Reading[FoundService]],
    context: Context,
) -> int:
    """Say what was written, what was not found, and what comes next; the exit code."""
    missing = {node: one.reason for node, one in services.items() if isinstance(one, Unknown)}
    for said in with_reasons("no endpoint of", found.left_out):
        context.warn(visible(said))
    for said in with_reasons("service not found on", missing):
        context.warn(visible(said))
    if not given.ssh or len(missing) == len(found.view.nodes):
        context.warn("the file has the usual service (`hosts.service`): correct it if it is another")
    if context.output.for_people:
        zones = f", zones {listed(list(found.zones.nodes))}" if found.zones.nodes else ""
        context.say(
            f"written: {path} ({counted(len(found.view.nodes), 'node')},"
            f" {counted(len(found.endpoints), 'endpoint')}{zones})"
        )
        name = path.stem if given.out is None else str(path) if is_path(str(path)) else f"./{path}"
        context.say(f"next: orchestrate validate --cluster {name}")
        context.say(f"      orchestrate plan --cluster {name}")
        context.say(f"      orchestrate rehearse --cluster {name} --seed 7")
    return int(
        context.end(
            ExitCode.DONE,
            cluster=found.view.name,
            path=str(path),
            endpoints=list(found.endpoints),
            nodes=len(found.view.nodes),
            not_found=dict(missing),
        )
    )
