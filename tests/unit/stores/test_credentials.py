"""A secret that is refused, or replaced while the program runs: how often it is sent, and which one."""

from __future__ import annotations

import os
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.config.secrets import SecretResolver, Source, parse_reference
from orchestrator.model.action import Purpose, Refused, WriteSettings
from orchestrator.model.observation import Look
from orchestrator.model.reading import Refusal, Unauthorized
from orchestrator.redact import Redactor
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.stores.elasticsearch.faults import Answer, Fault
from orchestrator.stores.elasticsearch.lease import ElasticsearchLease
from orchestrator.stores.elasticsearch.request import get
from tests.fakes.clock import ManualClock
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, node, reply

READ = get("/_cluster/health")
OLD, NEW, WRONG, THIRD = "hunter-old", "hunter-new", "hunter-wrong", "hunter-third"
DENIED = {"error": {"type": "security_exception", "reason": "unable to authenticate user [ops]"}}
FORBIDDEN = {"error": {"type": "security_exception", "reason": "action [x] is unauthorized for user [ops]"}}


def _header(password: str) -> str:
    return "Basic " + b64encode(f"ops:{password}".encode()).decode()


class Account:
    """What a server takes: `password` now; requests that sent another one are counted in `refused`."""

    def __init__(self, name: str = "es1") -> None:
        self.password, self.name, self.forbidden = OLD, name, False
        self.refused: list[str] = []

    def guarded(self, answer: Answerer) -> Answerer:
        def guard(asked: Asked, wire: Wire) -> None:
            if asked.headers.get("authorization") != _header(self.password):
                self.refused.append(asked.headers.get("authorization", ""))
                reply(DENIED, status=401)(asked, wire)
            elif self.forbidden:
                self.refused.append("403")
                reply(FORBIDDEN, status=403)(asked, wire)
            else:
                answer(asked, wire)

        return guard

    def serve(self, server: ScriptedServer) -> ScriptedServer:
        for path in ("/_nodes/_local/http", "/_nodes/http"):
            server.on(path, self.guarded(reply(node(self.name))))
        server.on("/_cluster/health", self.guarded(reply({})))
        return server


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.fixture
def server(account: Account) -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield account.serve(running)


class Kept:
    """A `Renewal` over a variable."""

    def __init__(self) -> None:
        self.password, self.reads, self.changed = OLD, 0, False

    def touched(self) -> bool:
        return self.changed

    def read(self) -> str | None:
        self.reads, self.changed = self.reads + 1, False
        return self.password


Open = Callable[..., tuple[ElasticsearchClient, ManualClock, Kept]]


@pytest.fixture
def opened() -> Iterator[Open]:
    made: list[ElasticsearchClient] = []

    def make(*urls: str, renewed: bool = True, redact: Redactor | None = None) -> object:
        clock = ManualClock()
        access = Access(endpoints=urls, username="ops", password=OLD, source="file:pw")
        kept = Kept()
        client = ElasticsearchClient(access, clock=clock, redact=redact, renewal=kept if renewed else None)
        made.append(client)
        return client, clock, kept

    yield make  # type: ignore[misc]  # as the alias has it
    for one in made:
        one.close()


def test_a_refused_secret_is_sent_once_a_minute_by_all_threads(
    account: Account, server: ScriptedServer, opened: Open
) -> None:
    client, clock, _ = opened(server.url, renewed=False)
    assert isinstance(client.read(READ), Answer)
    account.password = NEW
    first = client.read(READ)
    assert isinstance(first, Fault)
    assert first.refusal == Refusal(endpoint=server.url, credentials="user ops", source="file:pw")
    assert first.reason.startswith(f"{server.url} refused user ops (401; secret from file:pw): unable to")

    def work() -> None:
        cluster, lease = ElasticsearchCluster(client), ElasticsearchLease(client)
        for _ in range(5):
            read = cluster.observe({Look.CLUSTER}).cluster
            assert isinstance(read, Unauthorized), read
            assert read.refusal == first.refusal
            assert isinstance(lease.read(), Unauthorized)
            done = cluster.perform(WriteSettings(changes=(), purpose=Purpose.PUT_BACK))
            assert not isinstance(done, Refused) or done.refusal == first.refusal

    for minute in range(1, 4):
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(account.refused) == minute
        clock.time += 60.0
        client.read(READ)
        assert len(account.refused) == minute + 1
    account.password = OLD
    clock.time += 59.0
    assert isinstance(client.read(READ), Fault)
    clock.time += 1.0
    assert isinstance(client.read(READ), Answer)
    assert isinstance(client.read(READ), Answer)


def test_a_secret_that_was_replaced_costs_one_request(
    account: Account, server: ScriptedServer, opened: Open
) -> None:
    redact = Redactor()
    client, _, kept = opened(server.url, redact=redact)
    client.read(READ)
    account.password = kept.password = NEW
    assert isinstance(client.read(READ), Answer)
    assert account.refused == [_header(OLD)]
    assert client.read(READ) == Answer(status=200, body={})
    assert kept.reads == 1
    assert redact(f"{NEW} {_header(NEW)}") == "[redacted] Basic [redacted]"


def test_the_source_is_read_once_a_minute_unless_it_changes(
    account: Account, server: ScriptedServer, opened: Open
) -> None:
    client, clock, kept = opened(server.url)
    account.password = NEW
    for _ in range(10):
        assert isinstance(client.read(READ), Fault)
        clock.time += 1.0
    assert kept.reads == 1
    kept.password, kept.changed = NEW, True
    assert isinstance(client.read(READ), Answer)
    assert (kept.reads, len(account.refused)) == (2, 1)


def test_the_source_is_read_before_a_secret_is_sent_again(
    account: Account, server: ScriptedServer, opened: Open
) -> None:
    client, clock, kept = opened(server.url)
    account.password = NEW
    client.read(READ)
    kept.password = NEW
    clock.time += 60.0
    assert isinstance(client.read(READ), Answer)
    assert account.refused == [_header(OLD)]


def test_nodes_that_take_a_new_password_later_are_passed(opened: Open) -> None:
    early, late = Account("es1"), Account("es2")
    with ScriptedServer() as one, ScriptedServer() as other:
        early.serve(one), late.serve(other)
        client, _, kept = opened(one.url, other.url)
        client.read(READ)
        early.password = kept.password = NEW
        assert isinstance(client.read(READ), Answer)
        client.endpoints()  # asks the late one too
        for _ in range(20):
            assert isinstance(client.read(READ), Answer)
        assert len(late.refused) <= 2
        late.password = NEW
        assert client.endpoints() == {one.url: None, other.url: None}


def test_a_wrong_new_secret_is_sent_once_to_each_endpoint(opened: Open) -> None:
    accounts = [Account(name) for name in ("es1", "es2")]
    with ScriptedServer() as one, ScriptedServer() as other:
        accounts[0].serve(one), accounts[1].serve(other)
        client, clock, kept = opened(one.url, other.url)
        client.read(READ)
        client.endpoints()
        for account in accounts:
            account.password = NEW
        kept.password, kept.changed = "hunter-typo", True
        for _ in range(20):
            assert isinstance(client.read(READ), Fault)
            clock.time += 1.0
        sent = [header for account in accounts for header in account.refused]
        assert sent.count(_header("hunter-typo")) <= 1 + len(accounts), sent
        assert sent.count(_header(OLD)) == 1
        kept.password, kept.changed = NEW, True
        assert isinstance(client.read(READ), Answer)


def test_a_node_that_alone_refuses_is_the_last_to_be_asked(opened: Open) -> None:
    broken, good = Account("es1"), Account("es2")
    broken.password = NEW
    with ScriptedServer() as one, ScriptedServer() as other:
        broken.serve(one), good.serve(other)
        client, clock, _ = opened(one.url, other.url, renewed=False)
        assert isinstance(client.read(READ), Fault)
        clock.time += 60.0
        for _ in range(5):
            assert isinstance(client.read(READ), Answer)
        assert len(broken.refused) == 1


def test_a_right_that_is_taken_away_is_no_refused_login(
    account: Account, server: ScriptedServer, opened: Open
) -> None:
    client, _, kept = opened(server.url)
    client.read(READ)
    account.forbidden = True
    found = client.read(READ)
    assert isinstance(found, Fault)
    assert found.refusal == Refusal(
        endpoint=server.url,
        credentials="user ops",
        source="file:pw",
        status=403,
        call="GET /_cluster/health",
    )
    client.read(READ)
    assert (account.refused, kept.reads) == (["403", "403"], 1), "it may be another request's right"


def test_requests_without_credentials_are_not_held_back(server: ScriptedServer) -> None:
    client = ElasticsearchClient(Access(endpoints=(server.url,)), clock=ManualClock())
    try:
        for _ in range(2):
            assert isinstance(client.read(READ), Fault)
    finally:
        client.close()
    assert len(server.asked) == 2


def test_a_secret_in_a_file_is_seen_to_change(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    file.write_text(OLD)
    source = Source(
        SecretResolver(environment={}, folder=tmp_path, home=tmp_path), parse_reference("file:pw")
    )
    assert not source.touched()
    file.write_text(NEW)
    os.utime(file, ns=(1, 1))
    assert source.touched()
    assert source.read() == NEW
    assert not source.touched()
    file.unlink()
    assert source.touched()
    assert source.read() is None
    (tmp_path / "next").write_text("third")
    (tmp_path / "next").rename(file)  # as a mounted secret is replaced
    assert source.touched()
    assert source.read() == "third"


def test_a_new_secret_that_is_wrong_is_sent_once_to_each_node(opened: Open) -> None:
    one_account, other_account = Account("es1"), Account("es2")
    with ScriptedServer() as one, ScriptedServer() as other:
        one_account.serve(one), other_account.serve(other)
        client, clock, kept = opened(one.url, other.url)
        client.read(READ)
        one_account.password = other_account.password = NEW
        kept.password = WRONG
        for _ in range(59):
            assert isinstance(client.read(READ), Fault)
            clock.time += 1.0
        refused = [*one_account.refused, *other_account.refused]
        assert sorted(refused) == sorted([_header(OLD), *[_header(WRONG)] * 2])


def test_a_new_secret_replaced_within_a_minute_is_refused(
    account: Account, server: ScriptedServer, opened: Open
) -> None:
    client, clock, kept = opened(server.url)
    client.read(READ)
    account.password = kept.password = NEW
    assert isinstance(client.read(READ), Answer)
    account.password = THIRD
    for _ in range(30):
        assert isinstance(client.read(READ), Fault)
        clock.time += 1.0
    assert account.refused == [_header(OLD), _header(NEW)]
    kept.password, kept.changed = THIRD, True
    assert isinstance(client.read(READ), Answer)


def test_an_endpoint_without_a_connection_uses_up_no_try(opened: Open) -> None:
    gone, there = Account("es1"), Account("es2")
    with ScriptedServer() as other:
        there.serve(other)
        with ScriptedServer() as one:
            gone.serve(one)
            client, clock, _ = opened(other.url, one.url, renewed=False)
            client.read(READ)
            there.password = NEW
            assert isinstance(client.read(READ), Fault)  # from now on the other one is asked first
        there.password = OLD
        clock.time += 60.0
        assert isinstance(client.read(READ), Answer)


def test_a_known_node_that_refuses_alone_is_asked_last(opened: Open) -> None:
    broken, good = Account("es1"), Account("es2")
    with ScriptedServer() as one, ScriptedServer() as other:
        broken.serve(one), good.serve(other)
        client, clock, _ = opened(one.url, other.url, renewed=False)
        assert isinstance(client.read(READ), Answer)
        broken.password = NEW
        assert isinstance(client.read(READ), Fault)
        assert isinstance(client.read(READ), Fault)  # nothing is sent, so it changes no order
        clock.time += 60.0
        for _ in range(5):
            assert isinstance(client.read(READ), Answer)
        assert len(broken.refused) == 1


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        ((503, "master_not_discovered_exception"), None),
        ((404, "index_not_found_exception"), None),
        ((403, "security_exception"), 403),
        ((503, "cluster_block_exception"), 401),
        ((429, "circuit_breaking_exception"), 401),
    ],
)
def test_a_login_that_is_accepted_again_may_still_get_no_answer(
    answer: tuple[int, str], refused: int | None, account: Account, server: ScriptedServer, opened: Open
) -> None:
    client, clock, _ = opened(server.url, renewed=False)
    client.read(READ)
    account.password = NEW
    client.read(READ)
    account.password = OLD
    clock.time += 60.0
    body = {"error": {"type": answer[1], "reason": "not now"}}
    server.on("/_cluster/health", account.guarded(reply(body, status=answer[0])))
    client.read(READ)
    found = client.read(READ)
    assert isinstance(found, Fault)
    assert (found.refusal.status if found.refusal else None) == refused


@pytest.mark.parametrize("key", ["abcde", "a", "=", "not base 64"])
def test_a_key_that_is_no_base_64_is_hidden_too(key: str) -> None:
    assert key in Access(endpoints=("http://es1:9200",), api_key=key).secrets


def test_a_key_ring_that_is_locked_meanwhile_ends_nothing(tmp_path: Path) -> None:
    class KeyringLocked(Exception):  # noqa: N818  (as the package has it: no RuntimeError)
        pass

    def locked(_service: str, _user: str) -> str:
        raise KeyringLocked

    resolver = SecretResolver(environment={}, folder=tmp_path, home=tmp_path, keyring=locked)
    assert Source(resolver, parse_reference("keyring:es/ops")).read() is None
