"""First contact: which endpoint is which node, where the others are, and which version they speak."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import NodeStats
from orchestrator.stores.riak.admin import Programs
from orchestrator.stores.riak.contact import Contact, Contacts, Reach, usable
from orchestrator.stores.riak.output import CommandOutput
from tests.doubles.riak_double.stats import stats
from tests.fakes.scripted_http import reply
from tests.riak_nodes import RIAK_COMMANDS, name_of
from tests.unit.stores.riak_cluster import DEV1, DEV2, DEV3, NAMES, Staged, staged

NOT_KNOWN = CommandOutput(exit=1, stdout="Usage: riak { start | stop | version }\n")


@pytest.fixture(params=RIAK_COMMANDS, ids=name_of)
def stage(request: pytest.FixtureRequest) -> Iterator[Staged]:
    with staged(request.param) as each:
        yield each


def _contacts(stage: Staged, *nodes: NodeName, at: str = "127.0.0.1") -> Contacts:
    """Of these nodes the file names the endpoints; all machines are said to be there."""
    endpoints = [f"{stage.ports[node].url}/" for node in nodes]
    programs = Programs(riak=("/usr/sbin/riak",))
    reach = Reach(
        endpoints=endpoints,
        runner=stage.runner,
        address=lambda _: at,
        machine=lambda _: at,
        programs=lambda _: programs,
    )
    return Contacts(reach)


def _told(contacts: Contacts) -> Contact:
    found = contacts.find()
    assert isinstance(found, Contact), found
    return found


def _why(found: object) -> str:
    assert isinstance(found, Unknown), found
    return found.reason


def _hits(stage: Staged, node: NodeName) -> int:
    return len(stage.ports[node].asked)


def test_each_endpoint_is_asked_once_for_its_members(stage: Staged) -> None:
    contacts = _contacts(stage, DEV1, DEV3)
    assert _told(contacts) is _told(contacts)
    assert _told(contacts).members == NAMES
    assert _told(contacts).version == "3.2.1"
    assert (_hits(stage, DEV1), _hits(stage, DEV3)) == (1, 1)


def test_an_endpoint_that_is_a_node_is_where_it_is_asked(stage: Staged) -> None:
    contacts = _contacts(stage, DEV1, DEV3, at="127.0.0.9")
    _told(contacts)
    for node in (DEV1, DEV3):
        found = contacts.stats(node)
        assert isinstance(found, NodeStats), found
        assert found.node == node


@pytest.mark.parametrize(("at", "host"), [("127.0.0.9", "127.0.0.9"), ("::1", "[::1]")])
def test_a_member_without_endpoint_has_its_machines_first_port(stage: Staged, at: str, host: str) -> None:
    contacts = _contacts(stage, DEV1, DEV3, at=at)
    _told(contacts)
    assert _why(contacts.http(DEV2).ping()).startswith(f"http://{host}:{stage.ports[DEV1].port}/ping: ")
    assert _hits(stage, DEV1) == 1, "nothing that is known is asked again"


def test_another_node_at_an_endpoint_is_not_taken_for_it(stage: Staged) -> None:
    contacts = _contacts(stage, DEV1)
    _told(contacts)
    assert _why(contacts.stats(DEV2)) == (
        f"where {DEV2} is looked for, {DEV1} answers /stats: name both under `endpoints`"
    )


def test_a_second_node_of_a_machine_is_found_when_it_is_up(stage: Staged) -> None:
    stage.world.stop(DEV2)
    contacts = _contacts(stage, DEV1, DEV2)
    _told(contacts)
    stage.world.start(DEV2)
    found = contacts.stats(DEV2)
    assert isinstance(found, NodeStats), found
    assert found.node == DEV2


def test_a_page_that_claims_anothers_name_moves_nobody(stage: Staged) -> None:
    stage.world.stop(DEV2)
    contacts = _contacts(stage, DEV1, DEV2)
    _told(contacts)
    page = json.dumps(stats(stage.world.view(DEV1))).encode()
    stage.ports[DEV2].on("/stats", reply(page, headers={"Connection": "close"}))
    assert isinstance(contacts.stats(DEV2), Unknown)
    stage.ports[DEV2].on("/stats", reply(b"", headers={"Connection": "close"}))
    assert isinstance(contacts.stats(DEV1), NodeStats)


@pytest.mark.parametrize("version", ["4", "riak"])
def test_a_version_that_cannot_be_read_is_no_cluster(stage: Staged, version: str) -> None:
    stage.runner.instead[DEV1, "versions"] = CommandOutput(exit=0, stdout=f"* {version}\tpermanent\n")
    assert _why(_contacts(stage, DEV1).find()) == (
        f"{DEV1} is a Riak {version}, which is no version that this program can read: Riak 2.0 or newer is"
        " needed"
    )


@pytest.mark.parametrize("version", ["0.14", "1.3.2", "1.4.12"])
def test_a_version_below_2_0_is_refused_at_the_first_contact(stage: Staged, version: str) -> None:
    """1.4 was let in, and then every rule was unknown: it has neither `cluster status` nor bucket types."""
    stage.runner.instead[DEV1, "versions"] = NOT_KNOWN
    stage.runner.instead[DEV1, "version"] = CommandOutput(exit=0, stdout=f"{version}.0\n")
    assert _why(_contacts(stage, DEV1).find()) == (
        f"{DEV1} is a Riak {version}.0, which is too old: Riak 2.0 or newer is needed. Upgrade it, or restart"
        " its nodes by hand"
    )


@pytest.mark.parametrize("code", [0, 1])
def test_the_version_is_asked_by_the_word_of_each_release(stage: Staged, code: int) -> None:
    stage.runner.instead[DEV1, "versions"] = replace(NOT_KNOWN, exit=code)
    stage.runner.instead[DEV1, "version"] = CommandOutput(exit=0, stdout="2.9.10\n")
    contact = _told(_contacts(stage, DEV1))
    assert contact.version == "2.9.10"
    assert contact.admin.commands(DEV1).admin == ("/usr/sbin/riak-admin",)
    assert not contact.admin.dialect.returns_term


def test_the_next_node_is_asked_for_a_version_that_one_lacks(stage: Staged) -> None:
    stage.runner.instead[DEV1, "versions"] = stage.runner.instead[DEV1, "version"] = NOT_KNOWN
    assert _told(_contacts(stage, DEV1, DEV2)).version == "3.2.1"
    why = _why(_contacts(stage, DEV1).find())
    assert why.startswith(f"which version it is: asked on {DEV1}: riak versions: ")
    assert "; riak version: " in why
    stage.runner.instead[DEV1, "versions"] = Unknown(reason="no route to host")
    assert _why(_contacts(stage, DEV1).find()) == "which version it is: no route to host"


def test_what_was_not_found_is_looked_for_again(stage: Staged) -> None:
    stage.world.stop(DEV1)
    contacts = _contacts(stage, DEV1)
    assert _why(contacts.find()).startswith(f"{stage.ports[DEV1].url}/stats: ")
    assert _why(contacts.stats(DEV1)).startswith("http://127.0.0.1:")
    stage.world.start(DEV1)
    assert _told(contacts).version == "3.2.1"


def test_where_none_answers_each_endpoint_has_its_reason(stage: Staged) -> None:
    for node in NAMES:
        stage.world.stop(node)
    reasons = _why(_contacts(stage, DEV1, DEV2, DEV3).find()).split("; ")
    for node, reason in zip((DEV1, DEV2, DEV3), reasons, strict=True):
        assert reason.startswith(f"{stage.ports[node].url}/stats: ")


def test_endpoints_say_what_is_wrong_with_each(stage: Staged) -> None:
    stage.world.stop(DEV2)
    first, second = (f"{stage.ports[node].url}/" for node in (DEV1, DEV2))
    found = _contacts(stage, DEV1, DEV2).endpoints()
    assert (list(found), found[first]) == ([first, second], None)
    assert (found[second] or "").startswith(f"{stage.ports[DEV2].url}/stats: ")


def test_of_three_endpoints_each_must_call_the_others_members(stage: Staged) -> None:
    page = {**stats(stage.world.view(DEV3)), "ring_members": [DEV1, DEV3]}
    owners = {"ring_ownership": f"[{{'{DEV1}',8}},{{'{DEV3}',8}}]"}
    answer = reply(json.dumps({**page, **owners}).encode(), headers={"Connection": "close"})
    stage.ports[DEV3].on("/stats", answer)
    assert _told(_contacts(stage, DEV1, DEV3)).members == NAMES, "each calls the other one so"
    assert _why(_contacts(stage, DEV1, DEV2, DEV3).find()) == (
        f"{DEV3} does not call {DEV2} a member, and `endpoints` names both: they are not of one cluster"
    )


def test_those_that_go_down_are_asked_last() -> None:
    assert usable(NAMES, ()) == NAMES
    assert usable((DEV3, DEV2, DEV1), {DEV1}) == (DEV2, DEV3, DEV1)
    assert usable(NAMES, {DEV1, DEV2}) == (DEV3, DEV1, DEV2)


@pytest.mark.parametrize(
    ("programs", "line", "key"),
    [
        (Programs(riak=("/usr/sbin/riak",)), "/usr/sbin/riak", "command"),
        (Programs(riak=("/usr/sbin/riak",), admin=("riak", "admin")), "riak admin", "admin"),
    ],
)
def test_one_command_for_two_nodes_names_the_key_that_helps(
    stage: Staged, programs: Programs, line: str, key: str
) -> None:
    """No address can correct that: `hosts.nodes` and `hosts.overrides` alone were named before."""
    reach = Reach(
        endpoints=[stage.ports[DEV1].url],
        runner=stage.runner,
        address=lambda _: "127.0.0.1",
        machine=lambda _: "this machine",
        programs=lambda _: programs,
    )
    contacts = Contacts(reach)
    admin = _told(contacts).admin
    rule = f"+{'-' * 16}+{'-' * 14}+\n"
    table = f"{rule}|      node      |transfer_limit|\n{rule}| dev1@127.0.0.1 |      2       |\n{rule}\nok\n"
    stage.runner.instead[DEV2, "admin show transfer_limit"] = CommandOutput(exit=0, stdout=table)
    assert contacts.stranger(admin, DEV2) == Unknown(
        reason=f"on the machine of {DEV2} (127.0.0.1) {DEV1} answers to `{line}`, and both nodes are there:"
        f" give each its own command. Put {{node}}, {{name}} or {{host}} into `riak.{key}` of the cluster"
        f' file, or add `hosts.overrides: {{"{DEV2}": {{riak: {{{key}: COMMAND}}}}}}`'
    )
