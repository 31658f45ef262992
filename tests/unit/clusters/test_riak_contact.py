"""First contact: which endpoint is which node, where the others are, and who answers in a node's place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.model.action import InDoubt, ProbeSettings, Purpose, Refused, SettingChange, WriteSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level, Look
from orchestrator.model.reading import NOT_READ, Unknown
from orchestrator.model.riak import NodeStats
from orchestrator.riak.admin import Programs
from orchestrator.riak.contact import Contact, Contacts, Reach, usable
from orchestrator.riak.output import CommandOutput
from tests.doubles.riak_double.stats import stats
from tests.fakes.riak_world import World
from tests.fakes.scripted_http import reply
from tests.riak_nodes import RiakCommand
from tests.unit.clusters.cases import known, unread, why
from tests.unit.clusters.riak_cluster import BOOT, DEV1, DEV2, DEV3, NAMES, Staged, staged

NOT_KNOWN = CommandOutput(exit=1, stdout="Usage: riak { start | stop | version }\n")


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


def _answers(stage: Staged, port: NodeName, page: Mapping[str, object]) -> None:
    stage.ports[port].on("/stats", reply(json.dumps(page).encode(), headers={"Connection": "close"}))


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
    assert unread(lambda: contacts.http(DEV2).ping()).startswith(
        f"http://{host}:{stage.ports[DEV1].port}/ping: "
    )
    assert _hits(stage, DEV1) == 1, "nothing that is known is asked again"


def test_another_node_at_an_endpoint_is_not_taken_for_it(stage: Staged) -> None:
    contacts = _contacts(stage, DEV1)
    _told(contacts)
    assert unread(lambda: contacts.stats(DEV2)) == (
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
    _answers(stage, DEV2, stats(stage.world.view(DEV1)))
    assert unread(lambda: contacts.stats(DEV2))
    stage.ports[DEV2].on("/stats", reply(b"", headers={"Connection": "close"}))
    assert isinstance(contacts.stats(DEV1), NodeStats)


def test_the_version_is_asked_by_the_word_of_each_release(stage: Staged) -> None:
    """1.4 was let in, and then every rule was unknown: it has neither `cluster status` nor bucket types."""
    needed = "Riak 2.0 or newer is needed"
    for version in ("4", "riak"):
        stage.runner.instead[DEV1, "versions"] = CommandOutput(exit=0, stdout=f"* {version}\tpermanent\n")
        assert unread(lambda: _contacts(stage, DEV1).find()) == (
            f"{DEV1} is a Riak {version}, which is no version that this program can read: {needed}"
        )
    stage.runner.instead[DEV1, "versions"] = NOT_KNOWN
    for version in ("0.14", "1.3.2", "1.4.12"):
        stage.runner.instead[DEV1, "version"] = CommandOutput(exit=0, stdout=f"{version}.0\n")
        assert unread(lambda: _contacts(stage, DEV1).find()) == (
            f"{DEV1} is a Riak {version}.0, which is too old: {needed}."
            " Upgrade it, or restart its nodes by hand"
        )
    stage.runner.instead[DEV1, "version"] = CommandOutput(exit=0, stdout="2.9.10\n")
    for code in (0, 1):
        stage.runner.instead[DEV1, "versions"] = replace(NOT_KNOWN, exit=code)
        contact = _told(_contacts(stage, DEV1))
        assert contact.version == "2.9.10"
        assert contact.admin.commands(DEV1).admin == ("/usr/sbin/riak-admin",)
        assert not contact.admin.dialect.returns_term


def test_the_next_node_is_asked_for_a_version_that_one_lacks(stage: Staged) -> None:
    stage.runner.instead[DEV1, "versions"] = stage.runner.instead[DEV1, "version"] = NOT_KNOWN
    assert _told(_contacts(stage, DEV1, DEV2)).version == "3.2.1"
    reason = unread(lambda: _contacts(stage, DEV1).find())
    assert reason.startswith(f"which version it is: asked on {DEV1}: riak versions: ")
    assert "; riak version: " in reason
    stage.runner.instead[DEV1, "versions"] = Unknown(reason="no route to host")
    assert unread(lambda: _contacts(stage, DEV1).find()) == "which version it is: no route to host"


def test_what_was_not_found_is_looked_for_again(stage: Staged) -> None:
    stage.world.stop(DEV1)
    contacts = _contacts(stage, DEV1)
    assert unread(contacts.find).startswith(f"{stage.ports[DEV1].url}/stats: ")
    assert unread(lambda: contacts.stats(DEV1)).startswith("http://127.0.0.1:")
    stage.world.start(DEV1)
    assert _told(contacts).version == "3.2.1"


def test_each_endpoint_that_does_not_answer_has_its_reason(stage: Staged) -> None:
    stage.world.stop(DEV2)
    first, second = (f"{stage.ports[node].url}/" for node in (DEV1, DEV2))
    found = _contacts(stage, DEV1, DEV2).endpoints()
    assert (list(found), found[first]) == ([first, second], None)
    assert (found[second] or "").startswith(f"{second}stats: ")
    assert [url for url, what in stage.cluster.endpoints().items() if what] == [second.rstrip("/")]
    for node in (DEV1, DEV3):
        stage.world.stop(node)
    reasons = unread(lambda: _contacts(stage, DEV1, DEV2, DEV3).find()).split("; ")
    for node, reason in zip((DEV1, DEV2, DEV3), reasons, strict=True):
        assert reason.startswith(f"{stage.ports[node].url}/stats: ")


def test_of_three_endpoints_each_must_call_the_others_members(stage: Staged) -> None:
    page = {**stats(stage.world.view(DEV3)), "ring_members": [DEV1, DEV3]}
    owners = {"ring_ownership": f"[{{'{DEV1}',8}},{{'{DEV3}',8}}]"}
    _answers(stage, DEV3, {**page, **owners})
    assert _told(_contacts(stage, DEV1, DEV3)).members == NAMES, "each calls the other one so"
    assert unread(lambda: _contacts(stage, DEV1, DEV2, DEV3).find()) == (
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
    stage.runner.instead[DEV2, "admin show transfer_limit"] = _shown(DEV1)
    assert unread(lambda: contacts.refuse_stranger(admin, DEV2)) == (
        f"on the machine of {DEV2} (127.0.0.1) {DEV1} answers to `{line}`, and both nodes are there:"
        f" give each its own command. Put {{node}}, {{name}} or {{host}} into `riak.{key}` of the cluster"
        f' file, or add `hosts.overrides: {{"{DEV2}": {{riak: {{{key}: COMMAND}}}}}}`'
    )


# Strangers -------------------------------------------------------------------------------------------------

EVERYTHING = frozenset({Look.CLUSTER, Look.HEALTH, Look.ACTIVITY, Look.SETTINGS})
OTHERS = tuple(NodeName(f"test{number}@127.0.0.1") for number in (1, 2, 3))


def _shown(name: str) -> CommandOutput:
    rule = f"+{'-' * (len(name) + 2)}+--------------+"
    rows = (f"| {'node'.center(len(name))} |transfer_limit|", rule, f"| {name} |      2       |")
    return CommandOutput(exit=0, stdout="\n".join((rule, *rows, rule, "", "ok", "")))


def _lives(stage: Staged) -> tuple[dict[NodeName, str | None], dict[NodeName, str]]:
    view = known(stage.cluster.observe({Look.CLUSTER}).cluster)
    assert view.riak is not None
    return {node.name: node.incarnation.ephemeral_id for node in view.nodes}, dict(view.riak.unidentified)


def test_pages_that_are_not_of_one_cluster_are_no_cluster(stage: Staged, subtests: pytest.Subtests) -> None:
    """A node that has left has a ring of its own, and the others have one without it."""
    other = World(names=OTHERS)
    other.run(60)
    alone = {"ring_members": [DEV3], "ring_ownership": f"[{{'{DEV3}',16}}]"}
    of_none = {**stats(stage.world.view(DEV1)), "nodename": OTHERS[0]}
    for what, pages, named in [
        ("of two clusters", {DEV2: stats(other.view(OTHERS[0]))}, {DEV1, OTHERS[0]}),
        ("of a node that has left", {DEV3: {**stats(stage.world.view(DEV3)), **alone}}, {DEV3}),
        ("of a node that is no member", dict.fromkeys(NAMES, of_none), {OTHERS[0]}),
    ]:
        with subtests.test(what):
            before = {port: stage.ports[port].answers["/stats"] for port in NAMES}
            for port, page in pages.items():
                _answers(stage, port, page)
            stage.runner.asked.clear()
            readings = stage.cluster.observe(EVERYTHING)
            for reading in (readings.cluster, readings.settings, readings.health, readings.activity):
                assert all(name in why(reading) for name in named)
            assert stage.runner.asked == []
            assert isinstance(stage.cluster.perform(ProbeSettings()), Refused)
            for port, answers in before.items():
                stage.ports[port].answers["/stats"] = answers


def test_nothing_is_read_or_set_where_no_endpoint_answers(stage: Staged) -> None:
    for node in NAMES:
        stage.world.stop(node)
    readings = stage.cluster.observe(EVERYTHING)
    for reading in (readings.cluster, readings.settings, readings.health, readings.activity):
        assert isinstance(reading, Unknown)
    assert stage.cluster.observe({Look.HEALTH}).activity is NOT_READ
    assert stage.cluster.observe({Look.ACTIVITY}).health is NOT_READ
    assert isinstance(stage.cluster.perform(ProbeSettings()), Refused)
    assert stage.cluster.describe(ProbeSettings()).startswith("(not known: ")


def test_a_machine_on_which_another_node_answers_has_no_life(stage: Staged) -> None:
    """As with two addresses of `hosts.nodes` that changed places: the other node would be stopped."""
    stage.runner.instead[DEV2, "admin show transfer_limit"] = _shown(DEV3)
    lives, unidentified = _lives(stage)
    assert lives == {DEV1: f"{BOOT} 100 1000", DEV2: None, DEV3: f"{BOOT} 102 1000"}
    assert unidentified == {
        DEV2: f"on the machine of {DEV2} (127.0.0.1) {DEV3} answers: correct `hosts.nodes` or "
        "`hosts.overrides` in the cluster file"
    }


def test_a_machine_that_does_not_say_who_answers_has_no_life(subtests: pytest.Subtests) -> None:
    for output in [
        CommandOutput(exit=None, stdout=""),
        CommandOutput(exit=0, stdout=""),
        CommandOutput(exit=0, stdout="ok\n"),
        replace(_shown(DEV2), exit=1),
        CommandOutput(exit=0, stdout=_shown(DEV2).stdout.replace("ok\n", "")),
        CommandOutput(exit=0, stdout=f"Last login: today\n{_shown(DEV2).stdout}"),
        Unknown(reason="no route to host"),
    ]:
        with subtests.test(output=output), staged(RiakCommand.PACKAGED) as stage:
            stage.runner.instead[DEV2, "admin show transfer_limit"] = output
            lives, unidentified = _lives(stage)
            assert lives[DEV2] is None
            assert list(unidentified) == [DEV2]
            assert "answers: correct" not in unidentified[DEV2], "nobody said that it is another one"
            del stage.runner.instead[DEV2, "admin show transfer_limit"]
            assert _lives(stage) == ({name: f"{BOOT} {100 + at} 1000" for at, name in enumerate(NAMES)}, {})


def test_a_node_that_has_said_its_name_is_not_asked_again(stage: Staged) -> None:
    stage.cluster.observe({Look.CLUSTER})
    stage.cluster.observe({Look.CLUSTER})
    assert sorted(stage.runner.on("admin", "show", "transfer_limit")) == list(NAMES)


def test_a_limit_that_was_set_differently_is_in_doubt(stage: Staged) -> None:
    for said in (
        f"Set transfer limit for '{DEV3}' to 8",
        f"Set transfer limit for '{DEV2}' to 2",
        "Setting transfer limit to 8 across the cluster",
        'transfer_limit set to "8"',
    ):
        output = CommandOutput(exit=0, stdout=f"{said}\nok\n")
        stage.runner.instead[DEV1, f"admin transfer-limit {DEV2} 8"] = output
        change = SettingChange(level=Level.TRANSIENT, key=f"transfer_limit.{DEV2}", found="2", wanted="8")
        done = stage.cluster.perform(WriteSettings(changes=(change,), purpose=Purpose.RAISE_LIMITS))
        assert isinstance(done, InDoubt)
        assert DEV2 in done.reason
