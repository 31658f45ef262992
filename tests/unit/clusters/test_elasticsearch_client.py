"""Requests over real sockets: to whom, how often, and what is made of answers that are none."""

from __future__ import annotations

import json
import socket
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.elasticsearch.access import Access, RequestLimits, is_own, parse_endpoint
from orchestrator.elasticsearch.calls import HttpRequest, get
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.dialect import ServerVersion
from orchestrator.elasticsearch.faults import Answer, Fault
from orchestrator.elasticsearch.parse_cluster import Member
from orchestrator.errors import ConfigError
from orchestrator.model.action import ProbeSettings, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import EVERYTHING, Look, MasterElected
from orchestrator.model.reading import Unknown
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, cut, hang, node, raw, reply
from tests.ports import free_port
from tests.unit.clusters.cases import known, why
from tests.unit.clusters.conftest import PATIENT
from tests.unit.clusters.scripted import ACKNOWLEDGED, HEALTH, MEMBERS, PROBE, SETTINGS, STATE, RealClock, be

READ = get(HEALTH)
WRITE = HttpRequest(method="PUT", path=SETTINGS, body={"persistent": {"a": None}})
HASTY = RequestLimits(connect=10.0, silence=0.1, answer=0.2)
"""For servers that do not answer."""
SMALL = replace(PATIENT, answer_bytes=100_000)
SLOW = ("silence", "a trickle")
AUTH: Any = {"username": "ops", "password": "hunter2"}
V9 = ServerVersion(distribution="elasticsearch", version="9.1.0")
EMPTY_SETTINGS = reply({"persistent": {}, "transient": {}})
Open = Callable[..., ElasticsearchClient]


def fault(outcome: Answer | Fault) -> Fault:
    assert isinstance(outcome, Fault), outcome
    return outcome


def by(name: str) -> Answer:
    return Answer(status=200, body={"from": name})


def closed() -> str:
    """The URL of a port at which nothing listens."""
    return f"http://127.0.0.1:{free_port()}"


def error(kind: str, status: int, reason: str = "why") -> Answerer:
    return reply({"error": {"type": kind, "reason": reason}, "status": status}, status=status)


# What is sent ----------------------------------------------------------------------------------------------


def test_plain_json_is_sent_and_the_product_is_probed_once(server: ScriptedServer, client: Open) -> None:
    server.on(HEALTH, reply({"status": "green"}, headers={}))
    server.on(SETTINGS, reply({"acknowledged": True}, headers={"Warning": '299 ES "deprecated"'}))
    sender = client(server.url, **AUTH)
    assert sender.read(READ) == Answer(status=200, body={"status": "green"})
    assert sender.write(WRITE) == Answer(status=200, body={"acknowledged": True})
    assert server.paths() == [PROBE, HEALTH, SETTINGS]
    assert {asked.headers["accept"] for asked in server.asked} == {"application/json"}
    assert server.asked[2].headers["content-type"] == "application/json"
    assert server.asked[2].json == {"persistent": {"a": None}}
    assert sender.traffic.requests == 3
    bodies = (node("es1"), {"status": "green"}, {"acknowledged": True})
    assert sender.traffic.bytes_received == sum(len(json.dumps(body)) for body in bodies)


def test_credentials_are_sent_as_utf_8_and_never_shown(server: ScriptedServer, client: Open) -> None:
    server.on(HEALTH, reply({}))
    client(server.url, username="bjørn", password="пароль-€").read(READ)  # noqa: S106  (a test's own)
    word, _, encoded = server.asked[0].headers["authorization"].partition(" ")
    assert (word, b64decode(encoded).decode()) == ("Basic", "bjørn:пароль-€")
    sender = client(server.url, api_key="aWQ6a2V5")
    sender.read(READ)
    assert server.asked[-1].headers["authorization"] == "ApiKey aWQ6a2V5"
    assert "aWQ6a2V5" not in repr(sender.access)


def test_describe_is_what_is_sent(server: ScriptedServer, port: ElasticsearchCluster) -> None:
    server.on("PUT /_cluster/settings", ACKNOWLEDGED)
    server.on("GET /_cluster/settings", EMPTY_SETTINGS)
    port.perform(ProbeSettings())
    (put,) = (asked for asked in server.asked if asked.method == "PUT")
    assert port.describe(ProbeSettings()) == f"{put.method} {put.target} {json.dumps(put.json)}"


# Answers that are none -------------------------------------------------------------------------------------

HALF = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + b" " * 9999
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
NEITHER = "neither Elasticsearch nor OpenSearch"
NONSENSE: dict[str, tuple[Answerer, str]] = {
    "html": (reply(b"<html><h1>It works!</h1></html>", kind="text/html"), NEITHER),
    "another product": (reply({"tagline": "couch"}, headers={}), NEITHER),
    "a list": (reply([1, 2]), NEITHER),
    "no json": (reply(b"{nonsense"), "did not answer with JSON"),
    "half a body": (cut(HALF), "lost"),
    "no http": (cut(b"SSH-2.0-OpenSSH_9.2\r\n"), "lost"),
    "nothing": (cut(b""), "lost"),
    "silence": (hang, "did not answer in time"),
    "a trickle": (lambda _asked, wire: wire.trickle(ENDLESS, every=0.01), "not whole"),
    "too much": (reply(b'"' + b"x" * 200_000 + b'"'), "larger than"),
    "a redirect": (raw(REDIRECT), "redirects"),
    "a bad gateway": (
        reply(b"<html>502</html>", status=502, kind="text/html"),
        "answered with 502: <html>502",
    ),
    "a version that is none": (reply(node("es1", version="latest")), NEITHER),
}
PARTS = {
    Look.CLUSTER: f"{STATE},customs",
    Look.SETTINGS: SETTINGS,
    Look.HEALTH: HEALTH,
    Look.RECOVERIES: "/_recovery",
    Look.ACTIVITY: "/_tasks",
    Look.DISKS: "/_nodes/stats/fs",
}


def test_nonsense_for_a_server_is_unknown_with_its_reason(
    subtests: pytest.Subtests, server: ScriptedServer, client: Open
) -> None:
    for case, (answer, reason) in NONSENSE.items():
        with subtests.test(case):
            server.on(PROBE, answer)
            limits = HASTY if case in SLOW else SMALL
            seen = ElasticsearchCluster(client(server.url, limits=limits)).observe(EVERYTHING)
            for look in PARTS:
                said = why(getattr(seen, look.name.lower()))
                assert reason in said
                assert server.url in said or "answered with" in said


def test_nonsense_later_makes_every_part_unknown(
    subtests: pytest.Subtests, server: ScriptedServer, client: Open
) -> None:
    for case, (answer, _) in NONSENSE.items():
        with subtests.test(case):
            for path in PARTS.values():
                server.on(path, answer)
            port = ElasticsearchCluster(client(server.url, limits=HASTY if case in SLOW else SMALL))
            # Each takes its time to give up where no answer comes, and health longer than others.
            for look in PARTS if case not in SLOW else (Look.RECOVERIES,):
                assert isinstance(getattr(port.observe([look]), look.name.lower()), Unknown), look


def test_a_silent_answer_to_a_write_is_in_doubt_and_sent_once(server: ScriptedServer, client: Open) -> None:
    server.on(SETTINGS, hang)
    assert not fault(client(server.url, limits=HASTY).write(WRITE)).nothing_done
    assert server.paths() == [PROBE, SETTINGS]


# Again, or elsewhere ---------------------------------------------------------------------------------------


def test_a_read_that_got_lost_is_tried_again(server: ScriptedServer, client: Open, clock: RealClock) -> None:
    server.on(HEALTH, cut(b""), cut(HALF), reply({"a": 1}))
    assert client(server.url).read(READ) == Answer(status=200, body={"a": 1})
    assert server.paths().count(HEALTH) == 3
    server.on(HEALTH, cut(b""))
    server.asked.clear()
    assert "lost" in fault(client(server.url).read(READ)).reason
    assert server.paths().count(HEALTH) == PATIENT.attempts
    assert clock.waits, "an endpoint that fails is not asked again at once"
    assert max(clock.waits) <= 1.0


def test_a_read_goes_elsewhere_at_once(server: ScriptedServer, client: Open, clock: RealClock) -> None:
    server.on(HEALTH, reply({"from": "second"}))
    assert client(closed(), server.url).read(READ) == by("second")
    assert clock.waits in ([], [0.0])


def test_a_write_goes_elsewhere_only_if_nothing_was_sent(server: ScriptedServer, client: Open) -> None:
    server.on(SETTINGS, ACKNOWLEDGED)
    assert isinstance(client(closed(), server.url).write(WRITE), Answer)
    with ScriptedServer() as hostile:
        be(hostile, "es2").on(SETTINGS, cut(b""))
        assert not fault(client(hostile.url, server.url).write(WRITE)).nothing_done
    assert server.paths().count(SETTINGS) == 1


def test_a_lost_long_poll_returns_at_once(server: ScriptedServer, port: ElasticsearchCluster) -> None:
    server.on(HEALTH, cut(b""))
    assert port.watch(MasterElected(), 5.0) is False
    assert server.paths().count(HEALTH) == 1


def test_an_endpoint_that_cannot_be_reached(client: Open) -> None:
    for url, words in [
        (closed(), "takes no connections: Connection refused"),
        ("http://nobody.invalid:9200", "does not resolve"),
    ]:
        outcome = fault(client(url).write(WRITE))
        assert outcome.nothing_done
        assert words in outcome.reason
    done = ElasticsearchCluster(client(closed())).perform(ProbeSettings())
    assert isinstance(done, Refused)
    assert done.passes


def test_the_first_contact_has_a_reason_for_each_endpoint(server: ScriptedServer, client: Open) -> None:
    """It named the one that was tried last, and the others were looked for in vain."""
    unused, unknown = closed(), "http://nobody.invalid:9200"
    server.on(PROBE, error("boom", 502, "full"))
    sender = client(unused, unknown, server.url)
    expected = (
        f"{unused} takes no connections: Connection refused; the host of {unknown} does not resolve; "
        f"{server.url}: GET {PROBE} was answered with 502: full"
    )
    assert [fault(sender.server()).reason for _ in range(2)] == [expected, expected], "in the file's order"
    many = [f"http://nobody{number}.invalid:9200" for number in range(7)]
    reason = fault(client(*many).server()).reason
    assert reason.count("does not resolve") == 5
    assert reason.endswith("; and 2 more")


def test_refused_credentials_are_named_not_shown(server: ScriptedServer, client: Open) -> None:
    server.on(PROBE, error("security_exception", 401, "unable to authenticate user [ops]"))
    reason = fault(client(server.url, **AUTH).read(READ)).reason
    assert reason.startswith(f"{server.url} refused user ops (401): unable to authenticate")
    assert "hunter2" not in reason
    assert server.paths() == [PROBE], "wrong credentials are not tried again: accounts get locked"


# Nodes that go down ----------------------------------------------------------------------------------------


def be_members(server: ScriptedServer, *names: str, at: Mapping[str, str] = {}) -> ScriptedServer:
    """Let the server be these nodes, one after the other on new connections; `at` has addresses of some."""
    every = [node(name, address=at.get(name)) for name in dict.fromkeys((*names, *at))]
    listed = {
        "cluster_name": "c",
        "nodes": {key: own for each in every for key, own in each["nodes"].items()},
    }
    connections: list[object] = []

    def probe(asked: Asked, wire: Wire) -> None:
        connections.extend([] if wire.connection in connections else [wire.connection])
        name = names[min(connections.index(wire.connection), len(names) - 1)]
        reply(node(name, address=at.get(name)))(asked, wire)

    server.on(PROBE, probe)
    server.on(MEMBERS, reply(listed))
    server.on(SETTINGS, ACKNOWLEDGED)
    server.on(HEALTH, reply({"from": names[0]}))
    return server


def test_avoid_sends_nothing_to_a_node_that_goes_down(client: Open) -> None:
    """While another one answers. A node that has come back may be the only one that does."""
    with ScriptedServer() as first, ScriptedServer() as second:
        at = {"es1": f"127.0.0.1:{first.port}", "es2": f"127.0.0.1:{second.port}"}
        for name, server in (("es1", first), ("es2", second)):
            be_members(server, name, at=at)
        sender = client(first.url, second.url)
        assert sender.read(READ) == by("es1")
        sender.avoid([NodeName("es1")])
        assert sender.read(READ) == by("es2")
        sender.avoid([NodeName("es2")])
        assert sender.read(READ) == by("es1")
        sender.avoid([NodeName("es1"), NodeName("es2")])
        assert sender.read(READ) == by("es1")
        sender.avoid([NodeName("es1")])
        count = len(first.asked)
        for status in (200, 503):
            second.on(HEALTH, reply({"from": "es2"}, status=status))
            assert isinstance(sender.read(READ), Answer) is (status == 200)
        assert len(first.asked) == count


def test_other_nodes_are_found_by_published_addresses(client: Open) -> None:
    with ScriptedServer() as listed, ScriptedServer() as unlisted:
        at = {"es1": f"127.0.0.1:{listed.port}", "es2": f"127.0.0.1:{unlisted.port}"}
        be_members(listed, "es1", at=at)
        be_members(unlisted, "es2", at=at)
        sender = client(listed.url)
        sender.avoid([NodeName("es1")])
        count = len(listed.asked)
        assert sender.read(READ) == by("es2")
        assert len(listed.asked) == count


def test_the_only_endpoint_may_be_the_node_that_comes_back(client: Open) -> None:
    """Its own address, and no other node can be reached: the run is blind until the node is up."""
    port, others = free_port(), [f"127.0.0.1:{free_port()}" for _ in range(20)]
    at = {"es1": f"127.0.0.1:{port}"} | {f"es{number}": each for number, each in enumerate(others, start=2)}
    with ScriptedServer(at=port) as only:
        sender = client(be_members(only, "es1", at=at).url)
        assert sender.read(READ) == by("es1")
        sender.avoid([NodeName("es1")])
    assert "takes no connections" in fault(sender.read(READ)).reason
    with ScriptedServer(at=port) as only:
        be_members(only, "es1", at=at)
        count = sender.traffic.requests
        assert sender.read(READ) == by("es1")
        assert sender.traffic.requests == count + 1, "before the others, which were tried and did not answer"
        assert sender.write(WRITE) == Answer(status=200, body={"acknowledged": True})


@pytest.mark.proves("endpoints")
def test_only_a_node_s_own_address_is_avoided(
    server: ScriptedServer, client: Open, subtests: pytest.Subtests
) -> None:
    """A balancer was taken for the node that answered first, and the run was blind until its end."""
    here = f"127.0.0.1:{server.port}"
    away = {f"es{number}": f"127.0.0.1:{free_port()}" for number in (1, 2, 3)}
    for what, names, at in [
        ("a load balancer", ("es1", "es2", "es3"), away),
        ("a tunnel to one node", ("es1",), away),
        ("nodes that all publish one address", ("es1",), dict.fromkeys(away, here)),
        ("nodes of which two publish one address", ("es1",), {**away, "es1": here, "es2": here}),
        ("nodes that publish no address", ("es1", "es2"), {}),
        ("an address that moved from es1 to es2", ("es1", "es2"), {**away, "es1": here}),
    ]:
        sender = client(be_members(server, *names, at=at).url)
        assert sender.read(READ) == by("es1")
        for down in ("es1", "es2", "es3"):
            with subtests.test(what, down=down):
                sender.avoid([NodeName(down)])
                count = sender.traffic.requests
                assert sender.read(READ) == by("es1")
                assert sender.write(WRITE) == Answer(status=200, body={"acknowledged": True})
                assert sender.traffic.requests == count + 2, "nothing else is tried first"


@pytest.mark.proves("endpoints")
def test_an_endpoint_that_leads_to_a_node_that_is_down_is_left(
    client: Open, subtests: pytest.Subtests
) -> None:
    """A proxy beside one node answers for it, or its node is up and cannot join."""
    away = {f"es{number}": f"127.0.0.1:{free_port()}" for number in (1, 2, 3)}
    for what, trouble in [
        ("cannot join", error("master_not_discovered_exception", 503)),
        ("a bad gateway", reply(b"<html>502</html>", status=502, kind="text/html")),
        ("no server is available", reply(b"<html>503</html>", status=503, kind="text/html")),
        ("a gateway's time-out", reply(b"<html>504</html>", status=504, kind="text/html")),
    ]:
        for way in ("read", "write", "once"):
            with subtests.test(what, first=way), ScriptedServer() as first, ScriptedServer() as second:
                sender = client(be_members(first, "es1", at=away).url, be_members(second, "es2", at=away).url)
                assert sender.read(READ) == by("es1")
                sender.avoid([NodeName("es1")])
                for path in (PROBE, MEMBERS, SETTINGS, HEALTH):
                    first.on(path, trouble)
                begun = getattr(sender, way)(WRITE if way == "write" else READ)
                assert isinstance(begun, Answer) is (way == "read"), "only a read is repeated"
                count = len(first.asked)
                assert sender.once(READ) == sender.read(READ) == by("es2")
                assert sender.write(WRITE) == Answer(status=200, body={"acknowledged": True})
                assert len(first.asked) == count
                assert second.paths().count(SETTINGS) == 1


def test_a_read_leaves_an_avoided_node_without_a_master(client: Open) -> None:
    """Both nodes of a wave are down; one is up again before the other and has joined."""
    with ScriptedServer() as first, ScriptedServer() as second:
        at = {"es1": f"127.0.0.1:{first.port}", "es2": f"127.0.0.1:{second.port}"}
        sender = client(be_members(first, "es1", at=at).url, be_members(second, "es2", at=at).url)
        sender.avoid([NodeName("es1"), NodeName("es2")])
        first.on(HEALTH, error("master_not_discovered_exception", 503))
        assert sender.read(READ) == by("es2")
        assert sender.once(READ) == by("es2")


def test_a_name_with_an_unpublished_ipv6_address_is_left(
    monkeypatch: pytest.MonkeyPatch, client: Open
) -> None:
    resolve = socket.getaddrinfo

    def dual(host: str, port: int, *more: Any, **named: Any) -> list[Any]:
        if host != "dual":
            return resolve(host, port, *more, **named)
        unpublished = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::1", port, 0, 0))
        return [*resolve("127.0.0.1", port, *more, **named), unpublished]

    monkeypatch.setattr("socket.getaddrinfo", dual)
    with ScriptedServer() as first, ScriptedServer() as second:
        at = {"es1": f"127.0.0.1:{first.port}", "es2": f"127.0.0.1:{second.port}"}
        be_members(first, "es1", at=at)
        sender = client(f"http://dual:{first.port}", be_members(second, "es2", at=at).url)
        sender.avoid([NodeName("es1")])
        first.on(HEALTH, error("master_not_discovered_exception", 503))
        assert sender.read(READ) == sender.once(READ) == by("es2")
        assert first.paths().count(HEALTH) == 1


def test_avoid_waits_briefly_for_an_endpoint_that_hangs(server: ScriptedServer, client: Open) -> None:
    sender = client(server.url, limits=replace(PATIENT, connect=0.5))
    assert not isinstance(sender.dialect(), Fault)
    server.on(PROBE, hang)
    began = sender.clock.now()
    sender.avoid([NodeName("es1")])
    assert sender.clock.now() - began < PATIENT.silence / 2


def test_is_own_looks_at_every_address_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {"es1": ["10.0.0.1"], "es": ["10.0.0.1", "10.0.0.2"], "dual": ["10.0.0.1", "fd00::1"]}

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        if host not in hosts:
            raise OSError
        return [(0, 0, 0, "", (each, port)) for each in hosts[host]]

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    found = {
        (url, address): is_own(parse_endpoint(f"https://{url}"), address)
        for url in ("es1:9200", "es:9200", "dual:9200", "10.0.0.1:9200", "es1:9201", "nowhere:9200")
        for address in ("10.0.0.1:9200", "es1/10.0.0.1:9200", None)
    }
    assert {key for key, own in found.items() if own} == {
        (url, address)
        for url in ("es1:9200", "10.0.0.1:9200")
        for address in ("10.0.0.1:9200", "es1/10.0.0.1:9200")
    }


def test_a_node_without_a_master_does_not_pin_a_balancer(server: ScriptedServer, client: Open) -> None:
    """The connection stays with the node that it was led to; the next one may lead to another node."""
    wires: list[Wire] = []

    def answer(asked: Asked, wire: Wire) -> None:
        wires.append(wire)
        error("master_not_discovered_exception", 503)(asked, wire)

    server.on(HEALTH, answer)
    sender = client(server.url)
    for _ in range(3):
        assert fault(sender.read(READ)).status == 503
    assert len({id(each.connection) for each in wires}) == 3
    away = {f"es{number}": f"127.0.0.1:{free_port()}" for number in (1, 2, 3)}
    sender = client(be_members(server, "es1", at=away).url)
    sender.avoid([NodeName("es2")])
    server.on(HEALTH, answer)
    count = sender.traffic.requests
    assert [fault(sender.read(READ)).status for _ in range(2)] == [503, 503]
    assert sender.traffic.requests == count + 2, (
        "the only endpoint stays the first, and the others are no help"
    )


def test_only_through_names_the_nodes_whose_waves_are_blind(
    server: ScriptedServer, client: Open, subtests: pytest.Subtests
) -> None:
    here, closed_at = f"127.0.0.1:{server.port}", f"127.0.0.1:{free_port()}"
    private = dict.fromkeys(("es1", "es2", "es3"), closed_at)
    with ScriptedServer() as second:
        beside = f"127.0.0.1:{second.port}"
        be_members(second, "es2")
        for what, names, at, through in [
            ("its own address alone", ("es1",), {"es1": here, "es2": closed_at}, "es1"),
            ("another node's address answers", ("es1",), {"es1": here, "es2": beside}, None),
            ("a tunnel to one node", ("es1",), private, "es1"),
            ("a load balancer", ("es1", "es1", "es2"), private, None),
            ("one address for all", ("es1",), {"es1": here, "es2": here}, None),
            ("a cluster of one node", ("es1",), {"es1": here}, None),
            ("nodes without an address", ("es1",), {"es1": here, "es2": ""}, "es1"),
        ]:
            with subtests.test(what):
                sender = client(be_members(server, *names, at=at).url)
                assert not isinstance(sender.dialect(), Fault)
                sender.learn({NodeName("es0"): Member(server=V9, http=at["es1"])})
                sender.only([NodeName(name) for name in at])  # es0 has left, and es1 has its address
                found = sender.only_through([["es2"], ["es1"]])
                assert sender.only_through([["es3"]]) is None
                assert (found and sorted(found.nodes)) == (through and [through])
                if found:
                    assert f"while es1 is down: {server.url} led to no other node" in str(found)
                    assert "Add the URL of another node to `endpoints`" in str(found)


def test_a_busy_master_does_not_hold_readings_for_ever(
    server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    """Its queue takes higher priorities first, so a wait for the lowest one never ends."""
    busy = {"status": "green", "timed_out": True, "number_of_nodes": 3, "active_shards": 1}
    busy |= dict.fromkeys(("initializing_shards", "relocating_shards", "unassigned_shards"), 0)
    busy |= {"number_of_pending_tasks": 40, "task_max_waiting_in_queue_millis": 9000}

    def answer(asked: Asked, wire: Wire) -> None:
        ends = asked.params["wait_for_events"] in ("high", "urgent")
        reply({**busy, "timed_out": not ends}, status=200 if ends else 408)(asked, wire)

    server.on(HEALTH, answer)
    seen = [known(port.observe({Look.HEALTH}).health) for _ in range(16)]
    slow = [("languid", False), ("languid", False), ("normal", False), ("normal", False)]
    expected = [*slow, *[("high", True)] * 10, *slow[:2]]
    assert [(health.waited_for, health.settled) for health in seen] == expected


def test_bad_endpoints_are_faults_of_the_configuration(client: Open) -> None:
    for url, message in [
        ("es1:9200", "must be like https://host:9200"),
        ("ftp://es1", "must be like https://host:9200"),
        ("http://u:p@es1:9200", "credentials belong under `auth`"),
        ("http://es1:ninetwo", "is not a URL"),
    ]:
        with pytest.raises(ConfigError, match=message) as caught:
            client(url)
        assert caught.value.key == "endpoints"
        assert "p@" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"tls\.ca: /nowhere/ca\.pem cannot be used"):
        client("https://es1:9200", ca="/nowhere/ca.pem")


@pytest.mark.parametrize("key", ["abcde", "a", "=", "not base 64"])
def test_a_key_that_is_no_base_64_is_hidden_too(key: str) -> None:
    assert key in Access(endpoints=("http://es1:9200",), api_key=key).secrets
