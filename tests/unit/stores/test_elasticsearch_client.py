"""Requests over real sockets: to whom, how often, and what is made of answers that are none."""

from __future__ import annotations

import hashlib
import json
import ssl
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.model.action import Flush, InDoubt, ProbeSettings, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import EVERYTHING, Look
from orchestrator.model.reading import NOT_READ, Unknown
from orchestrator.model.watch import MasterElected
from orchestrator.stores.elasticsearch.access import Access, Limits
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.stores.elasticsearch.faults import Answer, Fault
from orchestrator.stores.elasticsearch.request import Request, get
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, cut, hang, node, raw, reply
from tests.lab.security import LabUser, Security, write_security
from tests.ports import free_port

PROBE = "/_nodes/_local/http"
READ = get("/_cluster/health")
WRITE = Request(method="PUT", path="/_cluster/settings", body={"persistent": {"a": None}})
PATIENT = Limits(connect=10.0, silence=20.0, answer=30.0)
"""For servers that answer, however loaded this machine is."""
HASTY = Limits(connect=10.0, silence=0.3, answer=0.6, answer_bytes=100_000)
"""For those that do not."""


class RealClock:
    """Real time; waits are not waited out, so that retries cost a test nothing."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def clock() -> RealClock:
    return RealClock()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        running.on(PROBE, reply(node("es1")))
        running.on("/_nodes/http", reply(node("es1")))
        yield running


Open = Callable[..., ElasticsearchClient]


@pytest.fixture
def client(clock: RealClock) -> Iterator[Open]:
    opened: list[ElasticsearchClient] = []

    def open_client(*urls: str, limits: Limits = PATIENT, **more: object) -> ElasticsearchClient:
        access = Access(endpoints=urls, **more)  # type: ignore[arg-type]  # any of its fields
        opened.append(ElasticsearchClient(access, clock=clock, limits=limits))
        return opened[-1]

    yield open_client
    for each in opened:
        each.close()


def fault(outcome: Answer | Fault) -> Fault:
    assert isinstance(outcome, Fault), outcome
    return outcome


def test_plain_json_is_sent_and_the_product_is_probed_once(server: ScriptedServer, client: Open) -> None:
    server.on("/_cluster/health", reply({"status": "green"}, headers={}))
    server.on("/_cluster/settings", reply({"acknowledged": True}, headers={"Warning": '299 ES "deprecated"'}))
    sender = client(server.url, username="u", password="p")  # noqa: S106  (a test's own)
    assert sender.read(READ) == Answer(status=200, body={"status": "green"})
    assert sender.write(WRITE) == Answer(status=200, body={"acknowledged": True})
    assert server.paths() == [PROBE, "/_cluster/health", "/_cluster/settings"]
    assert {asked.headers["accept"] for asked in server.asked} == {"application/json"}
    assert server.asked[2].headers["content-type"] == "application/json"
    assert server.asked[2].json == {"persistent": {"a": None}}
    assert server.asked[1].headers["authorization"].startswith("Basic ")
    assert sender.traffic.requests == 3
    assert sender.traffic.bytes_received == sum(
        len(json.dumps(body)) for body in (node("es1"), {"status": "green"}, {"acknowledged": True})
    )


def test_a_user_and_a_password_are_sent_as_utf_8(server: ScriptedServer, client: Open) -> None:
    server.on("/_cluster/health", reply({}))
    sender = client(server.url, username="bjørn", password="пароль-€")  # noqa: S106  (a test's own)
    sender.read(READ)
    word, _, encoded = server.asked[0].headers["authorization"].partition(" ")
    assert (word, b64decode(encoded).decode()) == ("Basic", "bjørn:пароль-€")


def test_an_api_key_is_sent_as_such_and_never_shown(server: ScriptedServer, client: Open) -> None:
    server.on("/_cluster/health", reply({}))
    sender = client(server.url, api_key="aWQ6a2V5")
    sender.read(READ)
    assert server.asked[0].headers["authorization"] == "ApiKey aWQ6a2V5"
    assert "aWQ6a2V5" not in repr(sender.access)


@pytest.mark.parametrize(
    ("version", "headers", "build", "expected"),
    [
        ("9.1.0", {"X-Elastic-Product": "Elasticsearch"}, "zip", ("elasticsearch", "9.1.0")),
        ("7.10.2", {}, "zip", ("elasticsearch", "7.10.2")),
        ("2.19.0", {}, "zip", ("opensearch", "2.19.0")),
        ("4.0.0", {}, "zip", ("opensearch", "4.0.0")),
        ("5.6.16", {}, None, ("elasticsearch", "5.6.16")),
        ("2.4.6", {}, None, ("elasticsearch", "2.4.6")),
        ("0.90.13", {}, None, ("elasticsearch", "0.90.13")),
    ],
)
def test_the_product_is_told_apart(
    server: ScriptedServer,
    client: Open,
    *,
    version: str,
    headers: dict[str, str],
    build: str | None,
    expected: tuple[str, str],
) -> None:
    server.on(PROBE, reply(node("es1", version=version, build=build), headers=headers))
    found = client(server.url).server()
    assert not isinstance(found, Fault)
    assert (found.distribution, found.version) == expected


@pytest.mark.parametrize("version", ["1.0.3", "2.2.0", "10.0.0", "0.20.6", "4.0.0"])
def test_other_versions_are_refused(server: ScriptedServer, client: Open, version: str) -> None:
    for path in (PROBE, "/_nodes/http"):
        server.on(path, reply(node("es1", version=version, build=None)))
    port = ElasticsearchCluster(client(server.url))
    seen = port.observe([Look.HEALTH])
    assert isinstance(seen.health, Unknown)
    assert "not in this version" in seen.health.reason
    assert seen.cluster is NOT_READ
    done = port.perform(ProbeSettings())
    assert isinstance(done, Refused)
    assert version in done.reason


NONSENSE: dict[str, tuple[Answerer, str]] = {
    "html": (
        reply(b"<html><h1>It works!</h1></html>", kind="text/html"),
        "neither Elasticsearch nor OpenSearch",
    ),
    "another product": (reply({"tagline": "couch"}, headers={}), "neither Elasticsearch nor OpenSearch"),
    "a list": (reply([1, 2]), "neither Elasticsearch nor OpenSearch"),
    "no json": (reply(b"{nonsense"), "did not answer with JSON"),
    "half a body": (
        cut(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"),
        "lost",
    ),
    "no http": (cut(b"SSH-2.0-OpenSSH_9.2\r\n"), "lost"),
    "nothing": (cut(b""), "lost"),
    "silence": (hang, "did not answer in time"),
    "a trickle": (
        lambda _asked, wire: wire.trickle(
            b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + b" " * 9999, every=0.01
        ),
        "not whole",
    ),
    "too much": (reply(b'"' + b"x" * 200_000 + b'"'), "larger than"),
    "a redirect": (
        raw(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
        "redirects",
    ),
    "a bad gateway": (
        reply(b"<html>502</html>", status=502, kind="text/html"),
        "answered with 502: <html>502",
    ),
    "a version that is none": (reply(node("es1", version="latest")), "neither Elasticsearch nor OpenSearch"),
}


def test_nonsense_for_a_server_is_unknown_with_its_reason(
    subtests: pytest.Subtests, server: ScriptedServer, client: Open
) -> None:
    for case, (answer, reason) in NONSENSE.items():
        with subtests.test(case=case):
            server.on(PROBE, answer)
            began = time.monotonic()
            seen = ElasticsearchCluster(client(server.url, limits=HASTY)).observe(EVERYTHING)
            assert time.monotonic() - began < 20
            for part in (
                seen.cluster,
                seen.settings,
                seen.health,
                seen.recoveries,
                seen.activity,
                seen.disks,
            ):
                assert isinstance(part, Unknown)
                assert reason in part.reason
                assert server.url in part.reason or "answered with" in part.reason


def test_nonsense_later_makes_every_part_unknown(
    subtests: pytest.Subtests, server: ScriptedServer, client: Open
) -> None:
    for case, (answer, _) in NONSENSE.items():
        with subtests.test(case=case):
            reads = (
                "/_cluster/state/master_node,nodes,metadata,routing_table,version,customs",
                "/_cluster/settings",
                "/_cluster/health",
                "/_recovery",
                "/_tasks",
                "/_nodes/stats/fs",
            )
            for path in reads:
                server.on(path, answer)
            port = ElasticsearchCluster(client(server.url, limits=HASTY))
            looks = [Look.CLUSTER, Look.SETTINGS, Look.RECOVERIES, Look.ACTIVITY, Look.DISKS]
            if case not in ("silence", "a trickle"):  # health may take its own, longer time
                looks.append(Look.HEALTH)
            for look in looks:
                seen = port.observe([look])
                assert isinstance(getattr(seen, look.name.lower()), Unknown), look


def test_a_silent_answer_to_a_write_is_in_doubt_and_sent_once(server: ScriptedServer, client: Open) -> None:
    server.on("/_cluster/settings", hang)
    outcome = fault(client(server.url, limits=HASTY).write(WRITE))
    assert not outcome.nothing_done
    assert server.paths() == [PROBE, "/_cluster/settings"]


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_server_errors_leave_a_write_in_doubt(server: ScriptedServer, client: Open, status: int) -> None:
    server.on("/_flush", reply({"error": {"type": "x_exception", "reason": "why"}}, status=status))
    done = ElasticsearchCluster(client(server.url)).perform(Flush())
    assert isinstance(done, InDoubt)
    assert "why" in done.reason
    assert server.paths().count("/_flush") == 1


def test_a_read_that_got_lost_is_tried_again(server: ScriptedServer, client: Open) -> None:
    server.on(
        "/_cluster/health", cut(b""), cut(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), reply({"a": 1})
    )
    assert client(server.url).read(READ) == Answer(status=200, body={"a": 1})
    assert server.paths().count("/_cluster/health") == 3


def test_retries_end(server: ScriptedServer, client: Open, clock: RealClock) -> None:
    server.on("/_cluster/health", cut(b""))
    assert "lost" in fault(client(server.url).read(READ)).reason
    assert server.paths().count("/_cluster/health") == PATIENT.attempts
    assert clock.waits, "an endpoint that fails is not asked again at once"
    assert max(clock.waits) <= 1.0


def test_a_read_goes_elsewhere_at_once(server: ScriptedServer, client: Open, clock: RealClock) -> None:
    server.on("/_cluster/health", reply({"from": "second"}))
    sender = client(f"http://127.0.0.1:{free_port()}", server.url)
    assert sender.read(READ) == Answer(status=200, body={"from": "second"})
    assert clock.waits in ([], [0.0])


def test_a_write_goes_elsewhere_only_if_nothing_was_sent(server: ScriptedServer, client: Open) -> None:
    server.on("/_cluster/settings", reply({"acknowledged": True}))
    assert isinstance(client(f"http://127.0.0.1:{free_port()}", server.url).write(WRITE), Answer)
    with ScriptedServer() as hostile:
        hostile.on(PROBE, reply(node("es2")))
        hostile.on("/_cluster/settings", cut(b""))
        outcome = fault(client(hostile.url, server.url).write(WRITE))
    assert not outcome.nothing_done
    assert server.paths().count("/_cluster/settings") == 1


def test_nobody_listens(client: Open) -> None:
    outcome = fault(client(f"http://127.0.0.1:{free_port()}").write(WRITE))
    assert outcome.nothing_done
    assert "takes no connections: Connection refused" in outcome.reason


def test_a_host_that_does_not_resolve(client: Open) -> None:
    outcome = fault(client("http://nobody.invalid:9200").write(WRITE))
    assert outcome.nothing_done
    assert "does not resolve" in outcome.reason


def test_the_first_contact_has_a_reason_for_each_endpoint(server: ScriptedServer, client: Open) -> None:
    """It named the one that was tried last, and the others were looked for in vain."""
    closed = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    unknown, refusing = "http://nobody.invalid:9200", server.url
    server.on(PROBE, reply({"error": {"type": "boom", "reason": "full"}}, status=502))
    sender = client(closed[0], unknown, refusing)
    expected = (
        f"{closed[0]} takes no connections: Connection refused; the host of {unknown} does not resolve; "
        f"{refusing}: GET {PROBE} was answered with 502: full"
    )
    assert [fault(sender.server()).reason for _ in range(2)] == [expected, expected], "in the file's order"
    many = [f"http://nobody{number}.invalid:9200" for number in range(7)]
    reason = fault(client(*many).server()).reason
    assert reason.count("does not resolve") == 5
    assert reason.endswith("; and 2 more")


def test_refused_credentials_are_named_not_shown(server: ScriptedServer, client: Open) -> None:
    denied = {"error": {"type": "security_exception", "reason": "unable to authenticate user [ops]"}}
    server.on(PROBE, reply(denied, status=401))
    outcome = fault(client(server.url, username="ops", password="hunter2").read(READ))  # noqa: S106  (a test's own)
    assert outcome.reason.startswith(f"{server.url} refused user ops (401): unable to authenticate")
    assert "hunter2" not in outcome.reason
    assert server.paths() == [PROBE], "wrong credentials are not tried again: accounts get locked"


def test_a_missing_privilege_is_named_with_the_role(server: ScriptedServer, client: Open) -> None:
    reason = "action [cluster:admin/settings/update] is unauthorized, granted by the privileges [manage,all]"
    denied = {"error": {"type": "security_exception", "reason": reason}}
    server.on("GET /_cluster/settings", reply({"persistent": {}, "transient": {}}))
    server.on("PUT /_cluster/settings", reply(denied, status=403))
    done = ElasticsearchCluster(client(server.url, username="ops", password="x")).perform(ProbeSettings())  # noqa: S106  (a test's own)
    assert isinstance(done, Refused)
    assert "user ops may not PUT /_cluster/settings (403)" in done.reason
    assert "[manage,all]" in done.reason
    assert "docs/reference/elasticsearch-role.yml" in done.reason


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"persistent": {"archived.a": "1"}, "transient": {"archived.b": "2"}}, "archived.a, archived.b"),
        ({"persistent": {}}, "transient is absent"),
        ({}, "persistent is absent"),
    ],
)
def test_archived_settings_refuse_the_probe(
    server: ScriptedServer, client: Open, found: object, reason: str
) -> None:
    server.on("GET /_cluster/settings", reply(found))
    server.on("PUT /_cluster/settings", reply({"acknowledged": True}))
    done = ElasticsearchCluster(client(server.url)).perform(ProbeSettings())
    assert isinstance(done, Refused)
    assert reason in done.reason
    assert "PUT" not in [asked.method for asked in server.asked]


def test_no_master_is_unknown(server: ScriptedServer, client: Open) -> None:
    body = {"error": {"type": "master_not_discovered_exception", "reason": None}, "status": 503}
    server.on("/_cluster/state/master_node,nodes,metadata,routing_table,version", reply(body, status=503))
    seen = ElasticsearchCluster(client(server.url)).observe([Look.CLUSTER])
    assert isinstance(seen.cluster, Unknown)
    assert "no elected master" in seen.cluster.reason


def test_a_lost_long_poll_returns_at_once(server: ScriptedServer, client: Open) -> None:
    server.on("/_cluster/health", cut(b""))
    port = ElasticsearchCluster(client(server.url))
    assert port.watch(MasterElected(), 5.0) is False
    assert server.paths().count("/_cluster/health") == 1


def test_a_node_that_goes_down_is_sent_nothing(client: Open) -> None:
    with ScriptedServer() as first, ScriptedServer() as second:
        for name, server in (("es1", first), ("es2", second)):
            server.on(PROBE, reply(node(name)))
            server.on("/_nodes/http", reply(node(name)))
            server.on("/_cluster/health", reply({"from": name}))
        sender = client(first.url, second.url)
        assert sender.read(READ) == Answer(status=200, body={"from": "es1"})
        sender.avoid([NodeName("es1")])
        count = len(first.asked)
        assert sender.read(READ) == Answer(status=200, body={"from": "es2"})
        sender.avoid([NodeName("es2")])
        assert sender.read(READ) == Answer(status=200, body={"from": "es1"})
        assert len(first.asked) == count + 1
        sender.avoid([NodeName("es1"), NodeName("es2")])
        outcome = fault(sender.write(WRITE))
        assert outcome.nothing_done
        assert "es1, es2" in outcome.reason
        assert len(first.asked) == count + 1


def test_other_nodes_are_found_by_published_addresses(client: Open) -> None:
    with ScriptedServer() as listed, ScriptedServer() as unlisted:
        listed.on(PROBE, reply(node("es1", address=f"127.0.0.1:{listed.port}")))
        both = node("es1", address=f"127.0.0.1:{listed.port}")
        both["nodes"] |= node("es2", address=f"127.0.0.1:{unlisted.port}")["nodes"]
        listed.on("/_nodes/http", reply(both))
        unlisted.on(PROBE, reply(node("es2")))
        unlisted.on("/_cluster/health", reply({"from": "es2"}))
        sender = client(listed.url)
        sender.avoid([NodeName("es1")])
        count = len(listed.asked)
        assert sender.read(READ) == Answer(status=200, body={"from": "es2"})
        assert len(listed.asked) == count


def test_after_a_crash_the_only_endpoint_may_be_the_node_in_hand(client: Open) -> None:
    """Nobody knows which node it is while it is down; once it is up it names the others."""
    port = free_port()
    with ScriptedServer() as other:
        other.on(PROBE, reply(node("es2")))
        other.on("/_cluster/health", reply({"from": "es2"}))
        sender = client(f"http://127.0.0.1:{port}")
        sender.avoid([NodeName("es1")])
        assert "takes no connections" in fault(sender.read(READ)).reason
        with ScriptedServer(at=port) as only:
            both = node("es1")
            both["nodes"] |= node("es2", address=f"127.0.0.1:{other.port}")["nodes"]
            only.on(PROBE, reply(node("es1")))
            only.on("/_nodes/http", reply(both))
            assert sender.read(READ) == Answer(status=200, body={"from": "es2"})
            assert "/_cluster/health" not in only.paths()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("es1:9200", "must be like https://host:9200"),
        ("ftp://es1", "must be like https://host:9200"),
        ("http://u:p@es1:9200", "credentials belong under `auth`"),
        ("http://es1:ninetwo", "is not a URL"),
    ],
)
def test_bad_endpoints(clock: RealClock, url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        ElasticsearchClient(Access(endpoints=(url,)), clock=clock)
    assert caught.value.key == "endpoints"
    assert "p@" not in str(caught.value)


def test_a_missing_certificate_file_is_a_configuration_fault(clock: RealClock) -> None:
    with pytest.raises(ConfigError, match=r"tls\.ca: /nowhere/ca\.pem cannot be used"):
        ElasticsearchClient(Access(endpoints=("https://es1:9200",), ca="/nowhere/ca.pem"), clock=clock)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    security = Security(users=(LabUser(name="lab", password="lab-password"),))  # noqa: S106  (a test's own)
    write_security(security, ca=folder / "ca.pem", configs=[folder])
    return folder


@pytest.fixture
def secure(files: Path) -> Iterator[ScriptedServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "node.crt", files / "node.key")
    with ScriptedServer(tls=context) as running:
        running.on(PROBE, reply(node("es1")))
        running.on("/_cluster/health", reply({"secure": True}))
        yield running


def test_tls_by_authority(secure: ScriptedServer, files: Path, client: Open) -> None:
    assert isinstance(client(secure.url, ca=str(files / "ca.pem")).read(READ), Answer)


def test_tls_by_fingerprint(secure: ScriptedServer, files: Path, client: Open) -> None:
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert((files / "node.crt").read_text())).hexdigest()
    assert isinstance(client(secure.url, fingerprint=digest).read(READ), Answer)
    outcome = fault(client(secure.url, fingerprint="ab" * 32).write(WRITE))
    assert outcome.nothing_done
    assert "not the one of `tls.fingerprint`" in outcome.reason


def test_tls_unchecked(secure: ScriptedServer, client: Open) -> None:
    assert isinstance(client(secure.url, verify=False).read(READ), Answer)


def test_tls_an_unknown_authority(secure: ScriptedServer, client: Open) -> None:
    outcome = fault(client(secure.url).write(WRITE))
    assert outcome.nothing_done
    assert "not signed by an authority that we trust" in outcome.reason
    assert "set `tls.ca`" in outcome.reason


def test_plain_http_where_tls_was_expected(server: ScriptedServer, client: Open) -> None:
    outcome = fault(client(server.url.replace("http:", "https:"), verify=False).write(WRITE))
    assert outcome.nothing_done
    assert "does not speak TLS" in outcome.reason


def test_tls_where_plain_http_was_expected(secure: ScriptedServer, client: Open) -> None:
    outcome = fault(client(secure.url.replace("https:", "http:")).read(READ))
    assert secure.url.removeprefix("https://") in outcome.reason


def test_the_port_sends_what_it_describes(server: ScriptedServer, client: Open) -> None:
    taken: list[Asked] = []

    def take(asked: Asked, wire: Wire) -> None:
        taken.append(asked)
        reply({"acknowledged": True})(asked, wire)

    server.on("PUT /_cluster/settings", take)
    server.on("GET /_cluster/settings", reply({"persistent": {}, "transient": {}}))
    port = ElasticsearchCluster(client(server.url))
    port.perform(ProbeSettings())
    sent = f"{taken[0].method} {taken[0].target} {json.dumps(taken[0].json)}"
    assert port.describe(ProbeSettings()) == sent


def _error(error_type: str, status: int) -> Answerer:
    return reply({"error": {"type": error_type, "reason": "why"}, "status": status}, status=status)


ANSWERS_TO_A_WRITE: tuple[tuple[str, Answerer, type, bool], ...] = (
    ("too many requests", _error("es_rejected_execution_exception", 429), Refused, True),
    ("a circuit breaker", _error("circuit_breaking_exception", 429), Refused, True),
    ("too long in the master's queue", _error("process_cluster_event_timeout_exception", 503), Refused, True),
    ("a block", _error("cluster_block_exception", 503), Refused, True),
    ("no master", _error("master_not_discovered_exception", 503), InDoubt, False),
    ("a proxy", reply(b"<html>503</html>", status=503, kind="text/html"), InDoubt, False),
    ("a password that was changed", _error("security_exception", 401), Refused, False),
    ("a right that was taken", _error("security_exception", 403), Refused, False),
    ("a wrong value", _error("illegal_argument_exception", 400), Refused, False),
    ("nothing at all", cut(b""), InDoubt, False),
    ("half a head", cut(b"HTTP/1.1 200 OK\r\nConte"), InDoubt, False),
    ("half a body", cut(b'HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"acknow'), InDoubt, False),
    ("half a chunk", cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{"), InDoubt, False),
)


def test_what_an_answer_to_a_write_means(server: ScriptedServer, client: Open) -> None:
    """Refused is what certainly did nothing; it passes where the same request may do a little later."""
    wrong = []
    for name, answer, result, passes in ANSWERS_TO_A_WRITE:
        server.on("/_cluster/settings", reply({"persistent": {}, "transient": {}}))
        server.on("PUT /_cluster/settings", answer)
        done = ElasticsearchCluster(client(server.url)).perform(ProbeSettings())
        found = isinstance(done, result) and getattr(done, "passes", False) is passes
        wrong += [] if found else [f"{name}: {done}"]
    assert wrong == []


def test_a_server_that_cannot_be_reached_refuses_for_now(client: Open) -> None:
    done = ElasticsearchCluster(client(f"http://127.0.0.1:{free_port()}")).perform(ProbeSettings())
    assert isinstance(done, Refused)
    assert done.passes


def test_a_busy_master_does_not_hold_readings_for_ever(server: ScriptedServer, client: Open) -> None:
    """Its queue takes higher priorities first, so a wait for the lowest one never ends."""
    busy = {"status": "green", "timed_out": True, "number_of_nodes": 3, "active_shards": 1}
    busy |= dict.fromkeys(("initializing_shards", "relocating_shards", "unassigned_shards"), 0)
    busy |= {"number_of_pending_tasks": 40, "task_max_waiting_in_queue_millis": 9000}

    def answer(asked: Asked, wire: Wire) -> None:
        ends = asked.params["wait_for_events"] in ("high", "urgent")
        reply({**busy, "timed_out": not ends}, status=200 if ends else 408)(asked, wire)

    server.on("/_cluster/health", answer)
    port = ElasticsearchCluster(client(server.url))
    seen = []
    for _ in range(16):
        health = port.observe({Look.HEALTH}).health
        assert not isinstance(health, Unknown)
        seen.append((health.waited_for, health.settled))
    slow = [("languid", False), ("languid", False), ("normal", False), ("normal", False)]
    assert seen == [*slow, *[("high", True)] * 10, *slow[:2]]
