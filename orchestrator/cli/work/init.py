"""A cluster file from a running cluster: questions, the reading, and one new file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.cli.other_commands import Given
from orchestrator.cli.prompts import agreed, has_terminal
from orchestrator.cli.work.init_access import (
    answered,
    as_written,
    asked_reference,
    connected,
    file_answer,
    in_options,
    naming_options,
    require_reference,
)
from orchestrator.config.draft import (
    Draft,
    HostsDraft,
    checked,
    cluster_text,
    mode_of,
    require_free,
    write_new,
)
from orchestrator.config.lookup import folder_of_new, is_path, place_of_new
from orchestrator.config.reaching import check_endpoint
from orchestrator.config.secrets import FORMS
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
from orchestrator.untrusted import visible
from orchestrator.view.text import counted, listed

_NO_USER: Final = "as ~/.ssh/config says"
_NO_KEY: Final = "the agent's keys and those of ~/.ssh/config"
Services = Mapping[NodeName, Reading[FoundService]]


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
    typed = given.username is None and given.api_key is None
    discovery, draft = connected(draft, path, context, typed=typed)
    try:
        found = discovery.read()
        context.note(f"found: {found.view.name}, {product(found)}, {counted(len(found.view.nodes), 'node')}")
        draft = with_cluster(draft, found)
        if given.cluster is None and given.out is None:
            path = _named(found.view.name, context)
        services: Services = {}
        if given.ssh:
            draft, services = _looked(draft, discovery, found, given, path, context)
        unit = _unit(services, given, found.view.distribution, context)
        draft = with_services(draft, services, found.view.distribution, unit)
    finally:
        discovery.close()
    with naming_options():
        checked(draft, path=path, home=context.home)  # the program takes what it has written
    write_new(path, cluster_text(draft), mode_of(draft))
    return _end(path, given, found, draft, services, context)


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
        require_reference(option, reference)


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
    default = f" [{visible(name)}]"
    try:
        _place(name, None, context)
    except ConfigError as error:
        context.note(str(error))
        default = ""
    while True:
        answer = answered(f"Name of the file, for --cluster{default}", context) or name
        try:
            return _place(answer, None, context)
        except ConfigError as error:
            context.note(str(error))


def _first_draft(given: Given, path: Path, context: Context) -> Draft:
    password = given.password
    if given.username is not None and password is None:
        if not has_terminal(context):
            raise UsageError(f"--username needs --password REFERENCE ({FORMS})")
        question = f"Where the password of {visible(given.username)} is"
        password = asked_reference(question, "--password", path, context)

    def local(file: Path | None) -> str | None:
        return None if file is None else as_written(file, path, context.home)

    return Draft(
        name=given.cluster or "new",
        endpoints=(given.endpoint,),
        api_key=given.api_key,
        username=given.username,
        password=password,
        ca=local(given.ca),
        fingerprint=given.fingerprint,
        strict=given.strict,
        hosts=HostsDraft(
            connect=None if given.connect is None else given.connect.value,
            user=given.ssh_user,
            port=given.ssh_port,
            identity=local(given.identity),
            known_hosts=local(given.known_hosts),
        ),
    )


def _looked(
    draft: Draft, discovery: Discovery, found: Found, given: Given, path: Path, context: Context
) -> tuple[Draft, Services]:
    """The draft with the way to the hosts, and the service of each node; on a terminal, another try.

    Raises:
        UsageError: an option is wrong.
        typer.Abort: Ctrl-C.
    """
    draft = _with_ssh(draft, path, context, user=given.ssh_user is None, key=given.identity is None)

    def ask(draft: Draft) -> Services:
        with naming_options():
            file = checked(draft, path=path, home=context.home)
        return discovery.services(file, found.view)

    while True:
        context.note("looking on the hosts for the service of each node")
        draft, services = _by_openssh(draft, ask(draft), ask, context)
        keys = [one.key for one in services.values() if isinstance(one, NotAsked) and one.key is not None]
        for said in (*not_found(services), *no_root(services), *([unknown_keys(keys)] if keys else ())):
            context.warn(in_options(visible(said)))
        if len(_missing(services)) < len(found.view.nodes) or not has_terminal(context):
            return draft, services
        if len(keys) == len(services):  # another user or key for SSH would not help
            if not agreed("Look again, now that the host keys are known?", context):
                return draft, services
            continue
        if not agreed("Look again? SSH user and key are asked again", context):
            return draft, services
        draft = _with_ssh(draft, path, context, user=True, key=True)


def _not_reached(services: Services) -> dict[NodeName, NotAsked]:
    return {node: one for node, one in services.items() if isinstance(one, NotAsked)}


def _by_openssh(
    draft: Draft, services: Services, ask: Callable[[Draft], Services], context: Context
) -> tuple[Draft, Services]:
    """The draft with `connect: openssh` if `ssh` itself reaches more hosts; unless a way was given."""
    before = _not_reached(services)
    if draft.hosts.connect is not None or not any(one.of_the_way for one in before.values()):
        return draft, services
    tried = replace(draft, hosts=replace(draft.hosts, connect=Connect.OPENSSH.value))
    others = ask(tried)
    after = _not_reached(others)
    gained = {node: one.reason for node, one in before.items() if node not in after}
    if not gained or not after.keys() <= before.keys():
        return draft, services
    context.note(
        f"{visible(listed(sorted(gained)))} can be reached by your own `ssh` alone: `connect: openssh`"
    )
    why = with_reasons("`connect: ssh` does not reach", gained)
    return replace(tried, hosts=replace(tried.hosts, why_connect=why)), others


def _missing(services: Services) -> dict[NodeName, str]:
    return {node: one.reason for node, one in services.items() if isinstance(one, Unknown)}


def _with_ssh(draft: Draft, path: Path, context: Context, *, user: bool, key: bool) -> Draft:
    """The draft with SSH user and key. Without a terminal, and on this machine, there is no question.

    Raises:
        typer.Abort: Ctrl-C.
    """
    if not has_terminal(context) or draft.hosts.connect == Connect.LOCAL.value:
        return draft
    while True:
        hosts = draft.hosts
        if user:
            answer = answered(f"SSH user of the hosts [{visible(hosts.user or _NO_USER)}]", context)
            hosts = replace(hosts, user=answer or hosts.user)
        if key:
            question = f"Private key for SSH, a file [{visible(hosts.identity or _NO_KEY)}]"
            hosts = replace(hosts, identity=file_answer(question, path, context) or hosts.identity)
        try:
            with naming_options():
                checked(tried := replace(draft, hosts=hosts), path=path, home=context.home)
        except UsageError as error:
            context.note(str(error))
            if not user:
                raise
        else:
            return tried


def _unit(services: Services, given: Given, distribution: str, context: Context) -> str | None:
    """The systemd unit that the operator names, for nodes whose service was not found; None without one.

    Raises:
        typer.Abort: Ctrl-C.
    """
    if given.unit is not None or not has_terminal(context) or len(_missing(services)) < len(services):
        return given.unit
    question = f"systemd unit of the nodes [{usual_unit(distribution)}: not checked on a host]"
    return answered(question, context) or None


def _end(path: Path, given: Given, found: Found, draft: Draft, services: Services, context: Context) -> int:
    """Say what was written, found and assumed, and what comes next; the exit code."""
    for said in with_reasons("no endpoint of", found.left_out):
        context.warn(in_options(visible(said)))
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
        for one in draft.hosts.assumed:
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
            assumed=list(draft.hosts.assumed),
        )
    )


def _way(draft: Draft) -> str:
    """How the hosts are reached, as the file says."""
    return draft.hosts.connect or Connect.SSH.value
