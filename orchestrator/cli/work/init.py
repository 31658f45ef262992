"""A cluster file from a running cluster: questions, the reading, and one new file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NoReturn

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.cli.other_commands import Given
from orchestrator.cli.prompts import agreed, asked, has_terminal
from orchestrator.cli.work.certificate import shown_certificate
from orchestrator.config.cluster import ClusterFile
from orchestrator.config.draft import (
    Draft,
    checked,
    cluster_text,
    mode_of,
    require_free,
    write_new,
)
from orchestrator.config.lookup import folder_of_new, is_path, place_of_new
from orchestrator.config.reaching import check_endpoint
from orchestrator.config.secrets import FORMS, SecretResolver, parse_reference
from orchestrator.elasticsearch.connection import Server
from orchestrator.elasticsearch.faults import Fault
from orchestrator.errors import ConfigError, ExitCode, UsageError
from orchestrator.hosts.connection import unknown_keys
from orchestrator.hosts.find_service import FoundService, NotAsked
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect
from orchestrator.model.reading import Reading, Unknown
from orchestrator.next_command import next_command
from orchestrator.runs.first_file import (
    Discovery,
    Found,
    no_root,
    not_found,
    product,
    usual_unit,
    with_cluster,
    with_reasons,
    with_services,
)
from orchestrator.tls import broken
from orchestrator.untrusted import visible
from orchestrator.view.text import counted, listed

_NO_USER: Final = "as ~/.ssh/config says"
_NO_KEY: Final = "the agent's keys and those of ~/.ssh/config"
_UNAUTHORIZED: Final = 401
_PLAIN: Final = "http://"
_OPTIONS: Final = {
    "endpoints": "--endpoint",
    "auth.basic.username": "--username",
    "auth.basic.password": "--password",
    "auth.api_key": "--api-key",
    "tls.ca": "--ca",
    "tls.fingerprint": "--fingerprint",
    "tls.strict: false": "--no-strict",
    "hosts.connect": "--connect",
    "hosts.user": "--ssh-user",
    "hosts.port": "--ssh-port",
    "hosts.identity": "--identity",
    "hosts.known_hosts": "--known-hosts",
    "hosts.service.unit": "--unit",
}
"""Keys of the file, and the options that set them: messages name these, as the file is not there yet."""
Services = Mapping[NodeName, Reading[FoundService]]


def refuse_riak() -> NoReturn:
    """Riak's cluster file is short, and no endpoint shows it.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "init --kind riak: no cluster file is written for Riak. Begin with the example: "
        f"`{next_command('explain', 'riak-example.yml')} > riak.yml`; "
        f"`{next_command('explain', 'restart-riak')}` has the steps"
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
    new = _NewFile(path=_place(given.cluster, given.out, context), context=context)
    draft = _accepted(_first_draft(given, new), given, new)
    with closing(new.discovery(draft)) as discovery:
        found = discovery.read()
        context.note(f"found: {found.view.name}, {product(found)}, {counted(len(found.view.nodes), 'node')}")
        draft = with_cluster(draft, found)
        if given.cluster is None and given.out is None:
            new.path = _named(found.view.name, context)
        services: Services = {}
        if given.ssh:
            draft, services = _looked(draft, discovery, found, given, new)
    unit, distribution = given.unit, found.view.distribution
    if unit is None and new.asks and len(_missing(services)) == len(services):
        usual = f"{usual_unit(distribution)}: not checked on a host"
        unit = asked(f"systemd unit of the nodes [{usual}]", str, context) or None
    draft = with_services(draft, services, distribution, unit)
    new.checked(draft)  # the program takes what it has written
    write_new(new.path, cluster_text(draft), mode_of(draft))
    return _end(given, found, draft, services, new)


@dataclass(slots=True, kw_only=True)
class _NewFile:
    """The file that is written, and the process in which that is done."""

    path: Path
    context: Context
    warned: set[str] = field(default_factory=set)  # what was said of the file already

    @property
    def asks(self) -> bool:
        """Whether somebody can be asked."""
        return has_terminal(self.context)

    def checked(self, draft: Draft) -> ClusterFile:
        """The draft as the program will read it.

        Raises:
            UsageError: the program would refuse it; the message names the options that set the wrong keys.
        """
        try:
            return checked(draft, path=self.path, home=self.context.home)
        except ConfigError as error:
            raise _of_options(error) from error

    def discovery(self, draft: Draft) -> Discovery:
        """The way to the cluster. The caller closes it.

        Raises:
            UsageError: the draft would be refused, or a file or a secret that it names cannot be used.
        """
        file = self.checked(draft)
        for said in map(_of_option, file.warnings):
            if said not in self.warned:
                self.warned.add(said)
                self.context.warn(said)
        try:
            return Discovery(file, self.context.files, self.context.clock)
        except ConfigError as error:
            raise _of_options(error) from error

    def local(self, file: Path | None) -> str | None:
        """A path of this machine as the cluster file names it: relative paths start at its folder there."""
        if file is None:
            return None
        absolute, folder, home = file.expanduser().absolute(), self.path.absolute().parent, self.context.home
        if absolute.is_relative_to(folder):
            return str(absolute.relative_to(folder))
        return f"~/{absolute.relative_to(home)}" if absolute.is_relative_to(home) else str(absolute)

    def ask_file(self, question: str) -> str | None:
        """Ask for a file of this machine; None without one.

        Raises:
            typer.Abort: Ctrl-C.
        """

        def take(answer: str) -> str | None:
            if answer and not Path(answer).expanduser().is_file():
                raise UsageError(f"{answer}: there is no such file")
            return self.local(Path(answer)) if answer else None

        return asked(question, take, self.context)

    def ask_reference(self, question: str, option: str) -> str:
        """Ask for the reference of a secret until a secret is found there.

        Raises:
            typer.Abort: Ctrl-C.
        """
        context = self.context
        resolver = SecretResolver(environment=context.environment, folder=self.path.parent, home=context.home)

        def take(answer: str) -> str:
            _require_reference(option, answer)
            try:
                resolver.resolve(parse_reference(answer))
            except ConfigError as error:
                then = "Name another place, or end with Ctrl-C and provide it first"
                raise UsageError(f"{option}: {error}. {then}") from error
            return answer

        return asked(f"{question} ({FORMS})", take, context)


def _in_options(message: str) -> str:
    """A message about the new file, with options in place of keys."""

    def named(found: re.Match[str]) -> str:
        verb, (key, _, value) = "give " if found[1] else "", found[2].partition(": ")
        if found[2] in _OPTIONS:
            return f"{verb}{_OPTIONS[found[2]]}"
        return f"{verb}`{_OPTIONS[key]} {value}`" if key in _OPTIONS else found[0]

    return re.sub(r"(set )?`([\w.]+(?:: \w+)?)`", named, message)


def _of_option(error: ConfigError) -> str:
    """A fault of the new file, by the option that sets its key."""
    key = (error.key or "").partition("[")[0]
    place = _OPTIONS.get(key, error.key)
    return _in_options(f"{place}: {error.message}" if place else error.message)


def _of_options(error: ConfigError) -> UsageError:
    return UsageError(_of_option(error), *map(_of_option, error.others))


def _require_sense(given: Given) -> None:
    """Refuse options that contradict each other, and an address or a reference that a file does not take.

    Neither is repeated: the address may hold a password, and a secret may be in the place of a reference.

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
    _require_reference("--password", given.password)
    _require_reference("--api-key", given.api_key)
    login = "give --username and --password"
    try:
        check_endpoint(given.endpoint, example="https://es1:9200", ports="443 nor 9200", login=login)
    except ValueError as error:
        raise UsageError(f"--endpoint: {error}") from None


def _require_reference(option: str, reference: str | None) -> None:
    try:
        if reference is not None:
            parse_reference(reference)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _place(name: str | None, out: Path | None, context: Context) -> Path:
    """Where the file goes; without a name yet, a file in the same folder.

    Raises:
        ConfigError: it cannot be written there.
    """
    places = context.files.places
    if out is None and name is None:
        folder = folder_of_new(places)
        require_free(folder / ".new.yml")  # the folder counts: the name is still to come
        return folder / "new.yml"
    path = out or place_of_new(name or "", places)
    require_free(path)
    return path


def _named(name: str, context: Context) -> Path:
    """Where the file of a cluster of that name goes; on a terminal another name can be given.

    Raises:
        ConfigError: it cannot be written there.
        typer.Abort: Ctrl-C.
    """

    def take(answer: str) -> Path:
        return _place(answer or name, None, context)

    if not has_terminal(context):
        return take("")
    default = f" [{visible(name)}]"
    try:
        take("")
    except ConfigError as error:
        context.note(str(error))
        default = ""
    return asked(f"Name of the file, for --cluster{default}", take, context)


def _first_draft(given: Given, new: _NewFile) -> Draft:
    password = given.password
    if given.username is not None and password is None:
        if not new.asks:
            raise UsageError(f"--username needs --password REFERENCE ({FORMS})")
        password = new.ask_reference(f"Where the password of {visible(given.username)} is", "--password")
    return Draft(
        name=given.cluster or "new",
        endpoints=(given.endpoint,),
        api_key=given.api_key,
        username=given.username,
        password=password,
        ca=new.local(given.ca),
        fingerprint=given.fingerprint,
        strict=given.strict,
        connect=given.connect and given.connect.value,
        ssh_user=given.ssh_user,
        ssh_port=given.ssh_port,
        identity=new.local(given.identity),
        known_hosts=new.local(given.known_hosts),
    )


def _accepted(draft: Draft, given: Given, new: _NewFile) -> Draft:
    """The draft with the trust and the credentials that the cluster takes.

    Raises:
        UsageError: it is not reached, or there is no terminal to ask on.
        typer.Abort: a question was not answered.
    """
    draft = _over_tls(draft, new)
    no_login = given.username is None and given.api_key is None
    while True:
        with closing(new.discovery(draft)) as discovery:
            outcome = discovery.server()
        if isinstance(outcome, Server):
            return draft
        if outcome.malformed or (outcome.untrusted and draft.ca is None):
            draft = _with_trust(draft, outcome, new)
        elif outcome.status == _UNAUTHORIZED and no_login:  # a typed login that is refused is asked for again
            draft = _with_login(draft, outcome, new)
        else:
            raise UsageError(_in_options(outcome.reason))


def _over_tls(draft: Draft, new: _NewFile) -> Draft:
    """The draft with https:// if its http:// endpoint is a TLS port. No credential is sent to find out.

    Raises:
        UsageError: it is a TLS port, and there is no terminal to ask on; or it is not reached.
    """
    url = draft.endpoints[0]
    if not url.startswith(_PLAIN):
        return draft
    bare = replace(draft, api_key=None, username=None, password=None, ca=None, fingerprint=None)
    with closing(new.discovery(bare)) as discovery:
        outcome = discovery.server()
    if isinstance(outcome, Server) or outcome.status is not None:
        return draft
    secure = f"https://{url.removeprefix(_PLAIN)}"
    try:
        shown_certificate(secure)
    except (OSError, ValueError):
        raise UsageError(outcome.reason) from None
    said = f"{url} is a TLS port and does not answer plain HTTP"
    if not new.asks:
        raise UsageError(f"{said}: try --endpoint {secure}")
    new.context.note(said)
    if not agreed(f"Use {secure}?", new.context):
        raise UsageError(f"{said}: nothing is written")
    return replace(draft, endpoints=(secure,))


def _with_trust(draft: Draft, fault: Fault, new: _NewFile) -> Draft:
    """The draft with the authority that is to be trusted, its form accepted, or the certificate itself.

    Raises:
        UsageError: it is not trusted, or there is no terminal to ask on.
    """
    url, context = draft.endpoints[0], new.context
    try:
        found = shown_certificate(url)
    except (OSError, ValueError) as error:
        raise UsageError(f"the certificate of {url} is not trusted, and cannot be shown: {error}") from None
    refused = f"the certificate of {url} is not signed by an authority that is trusted here"
    remedy = "Give the authority with --ca FILE"
    if fault.malformed:
        refused = f"the certificate of {url}, or that of its authority, {broken(fault.malformed)}"
        remedy = "Issue a new one, accept such certificates of trusted authorities with --no-strict"
    if not new.asks:
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
        answer = new.ask_file("File of the authority's certificates [none: trust this certificate alone]")
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


def _with_login(draft: Draft, fault: Fault, new: _NewFile) -> Draft:
    """The draft with user and password, or an API key, by reference.

    Raises:
        UsageError: there is no terminal to ask on.
    """
    if not new.asks:
        raise UsageError(
            f"{fault.reason}. Give --username USER and --password REFERENCE, or --api-key REFERENCE ({FORMS})"
        )
    new.context.note(fault.reason)
    draft = replace(draft, username=None, password=None, api_key=None)
    username = asked("User [none: an API key]", str, new.context)
    if not username:
        return replace(draft, api_key=new.ask_reference("Where the API key is", "--api-key"))
    password = new.ask_reference(f"Where the password of {username} is", "--password")
    return replace(draft, username=username, password=password)


def _looked(
    draft: Draft, discovery: Discovery, found: Found, given: Given, new: _NewFile
) -> tuple[Draft, Services]:
    """The draft with the way to the hosts, and the service of each node; on a terminal, another try.

    Raises:
        UsageError: an option is wrong.
        typer.Abort: Ctrl-C.
    """
    context = new.context
    draft = _with_ssh(draft, new, user=given.ssh_user is None, key=given.identity is None)

    def ask(draft: Draft) -> Services:
        return discovery.services(new.checked(draft), found.view)

    while True:
        context.note("looking on the hosts for the service of each node")
        draft, services = _by_openssh(draft, ask(draft), ask, context)
        keys = [one.key for one in services.values() if isinstance(one, NotAsked) and one.key is not None]
        for said in (*not_found(services), *no_root(services), *([unknown_keys(keys)] if keys else ())):
            context.warn(_in_options(visible(said)))
        if len(_missing(services)) < len(found.view.nodes) or not new.asks:
            return draft, services
        new_keys = len(keys) == len(services)  # so another user or key for SSH would not help
        then = "now that the host keys are known?" if new_keys else "SSH user and key are asked again"
        if not agreed(f"Look again{', ' if new_keys else '? '}{then}", context):
            return draft, services
        if not new_keys:
            draft = _with_ssh(draft, new, user=True, key=True)


def _not_reached(services: Services) -> dict[NodeName, NotAsked]:
    return {node: one for node, one in services.items() if isinstance(one, NotAsked)}


def _missing(services: Services) -> dict[NodeName, str]:
    return {node: one.reason for node, one in services.items() if isinstance(one, Unknown)}


def _by_openssh(
    draft: Draft, services: Services, ask: Callable[[Draft], Services], context: Context
) -> tuple[Draft, Services]:
    """The draft with `connect: openssh` if `ssh` itself reaches more hosts; unless a way was given."""
    before = _not_reached(services)
    if draft.connect is not None or not any(one.of_the_way for one in before.values()):
        return draft, services
    tried = replace(draft, connect=Connect.OPENSSH.value)
    others = ask(tried)
    after = _not_reached(others)
    gained = {node: one.reason for node, one in before.items() if node not in after}
    if not gained or not after.keys() <= before.keys():
        return draft, services
    context.note(
        f"{visible(listed(sorted(gained)))} can be reached by your own `ssh` alone: `connect: openssh`"
    )
    why = with_reasons("`connect: ssh` does not reach", gained)
    return replace(tried, why_connect=why), others


def _with_ssh(draft: Draft, new: _NewFile, *, user: bool, key: bool) -> Draft:
    """The draft with SSH user and key. Without a terminal, and on this machine, there is no question.

    Raises:
        typer.Abort: Ctrl-C.
    """
    if not new.asks or draft.connect == Connect.LOCAL.value:
        return draft

    def take(answer: str) -> Draft:
        tried = replace(draft, ssh_user=answer or draft.ssh_user)
        new.checked(tried)
        return tried

    if user:
        draft = asked(f"SSH user of the hosts [{draft.ssh_user or _NO_USER}]", take, new.context)
    if key:
        question = f"Private key for SSH, a file [{draft.identity or _NO_KEY}]"
        draft = replace(draft, identity=new.ask_file(question) or draft.identity)
    return draft


def _end(given: Given, found: Found, draft: Draft, services: Services, new: _NewFile) -> int:
    """Say what was written, found and assumed, and what comes next; the exit code."""
    path, context = new.path, new.context
    for said in with_reasons("no endpoint of", found.left_out):
        context.warn(_in_options(visible(said)))
    if context.output.for_people:
        zones = f", zones {listed(list(found.zones.nodes))}" if found.zones.nodes else ""
        context.say(
            f"written: {path} ({counted(len(found.view.nodes), 'node')},"
            f" {counted(len(found.endpoints), 'endpoint')}{zones})"
        )
        if services:
            reached = len(services) - len(_not_reached(services))
            context.say(
                f"reached: {reached} of {counted(len(services), 'host')} with `connect: {_way(draft)}`"
            )
        for one in draft.assumed:
            context.say(f"assumed: {one}. Correct `hosts.service` in the file if it is not so")
        named = path.stem if given.out is None else str(path) if is_path(str(path)) else f"./{path}"
        context.say(f"next: {next_command('validate', '--cluster', named)}")
        context.say(f"      {next_command('plan', '--cluster', named)}")
        context.say(f"      {next_command('rehearse', '--cluster', named, '--seed', '7')}")
    return int(
        context.end(
            ExitCode.DONE,
            cluster=found.view.name,
            path=str(path),
            endpoints=list(found.endpoints),
            nodes=len(found.view.nodes),
            connect=_way(draft),
            not_found=_missing(services),
            assumed=list(draft.assumed),
        )
    )


def _way(draft: Draft) -> str:
    """How the hosts are reached, as the file says."""
    return draft.connect or Connect.SSH.value
