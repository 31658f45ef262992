"""A secret that is refused, or replaced while the program runs: how often it is sent, and which one."""

from __future__ import annotations

import os
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.config.secrets import SecretResolver, Source, parse_reference
from orchestrator.elasticsearch.access import Access
from orchestrator.elasticsearch.calls import get
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.faults import Answer, Fault
from orchestrator.elasticsearch.lease import ElasticsearchLease
from orchestrator.model.action import Purpose, Refused, WriteSettings
from orchestrator.model.observation import Look
from orchestrator.model.reading import Refusal, Unauthorized
from orchestrator.redact import Redactor
from tests.fakes.clock import ManualClock
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, node, reply
from tests.unit.clusters.scripted import HEALTH, MEMBERS, PROBE

READ = get(HEALTH)
OLD, NEW, WRONG, THIRD = "hunter-old", "hunter-new", "hunter-wrong", "hunter-third"


def _header(password: str) -> str:
    return "Basic " + b64encode(f"ops:{password}".encode()).decode()


def _denied(reason: str, status: int) -> Answerer:
    return reply({"error": {"type": "security_exception", "reason": reason}}, status=status)


@dataclass
class Account:
    """A server that takes `password`; requests that sent another one are in `refused`."""

    server: ScriptedServer
    name: str
    password: str = OLD
    forbidden: bool = False
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in (PROBE, MEMBERS):
            self.server.on(path, self.guarded(reply(node(self.name))))
        self.server.on(HEALTH, self.guarded(reply({})))

    def guarded(self, answer: Answerer) -> Answerer:
        def guard(asked: Asked, wire: Wire) -> None:
            if asked.headers.get("authorization") != _header(self.password):
                self.refused.append(asked.headers.get("authorization", ""))
                _denied("unable to authenticate user [ops]", 401)(asked, wire)
            elif self.forbidden:
                self.refused.append("403")
                _denied("action [x] is unauthorized for user [ops]", 403)(asked, wire)
            else:
                answer(asked, wire)

        return guard


@pytest.fixture
def accounts() -> Iterator[tuple[Account, Account]]:
    with ScriptedServer() as one, ScriptedServer() as other:
        yield Account(one, "es1"), Account(other, "es2")


@pytest.fixture
def account(accounts: tuple[Account, Account]) -> Account:
    return accounts[0]


class Kept:
    """A `Renewal` over a variable."""

    def __init__(self) -> None:
        self.password, self.reads, self.changed = OLD, 0, False

    def touched(self) -> bool:
        return self.changed

    def read(self) -> str | None:
        self.reads, self.changed = self.reads + 1, False
        return self.password


@dataclass
class Opened:
    """A client, its clock, and the place that its secret comes from."""

    client: ElasticsearchClient
    clock: ManualClock
    kept: Kept

    def answers(self) -> bool:
        return isinstance(self.client.read(READ), Answer)

    def fails(self, seconds: int) -> None:
        """Read once a second, and get no answer."""
        for _ in range(seconds):
            assert isinstance(self.client.read(READ), Fault)
            self.clock.time += 1.0


Open = Callable[..., Opened]


@pytest.fixture
def opened() -> Iterator[Open]:
    with ExitStack() as stack:

        def make(*accounts: Account, renewed: bool = True, redact: Redactor | None = None) -> Opened:
            urls = tuple(account.server.url for account in accounts)
            access = Access(endpoints=urls, username="ops", password=OLD, source="file:pw")
            clock, kept = ManualClock(), Kept()
            renewal = kept if renewed else None
            client = ElasticsearchClient(access, clock=clock, redact=redact, renewal=renewal)
            stack.callback(client.close)
            return Opened(client, clock, kept)

        yield make


def test_a_refused_secret_is_sent_once_a_minute_by_all_threads(account: Account, opened: Open) -> None:
    run = opened(account, renewed=False)
    client, clock, url = run.client, run.clock, account.server.url
    assert run.answers()
    account.password = NEW
    first = client.read(READ)
    assert isinstance(first, Fault)
    assert first.refusal == Refusal(endpoint=url, credentials="user ops", source="file:pw")
    assert first.reason.startswith(f"{url} refused user ops (401; secret from file:pw): unable to")

    def work() -> None:
        cluster, lease = ElasticsearchCluster(client), ElasticsearchLease(client)
        for _ in range(5):
            read = cluster.observe({Look.CLUSTER}).cluster
            assert isinstance(read, Unauthorized), read
            assert read.refusal == first.refusal
            assert isinstance(lease.read(), Unauthorized)
            done = cluster.perform(WriteSettings(changes=(), purpose=Purpose.RESTORE))
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
    assert not run.answers()
    clock.time += 1.0
    assert run.answers()
    assert run.answers()


def test_a_secret_that_was_replaced_costs_one_request(account: Account, opened: Open) -> None:
    redact = Redactor()
    run = opened(account, redact=redact)
    run.answers()
    account.password = run.kept.password = NEW
    assert run.answers()
    assert account.refused == [_header(OLD)]
    assert run.answers()
    assert run.kept.reads == 1
    assert redact(f"{NEW} {_header(NEW)}") == "[redacted] Basic [redacted]"


def test_the_source_is_read_once_a_minute_unless_it_changes(account: Account, opened: Open) -> None:
    run = opened(account)
    account.password = NEW
    run.fails(10)
    assert run.kept.reads == 1
    run.kept.password, run.kept.changed = NEW, True
    assert run.answers()
    assert (run.kept.reads, len(account.refused)) == (2, 1)


def test_the_source_is_read_before_a_secret_is_sent_again(account: Account, opened: Open) -> None:
    run = opened(account)
    account.password = NEW
    run.answers()
    run.kept.password = NEW
    run.clock.time += 60.0
    assert run.answers()
    assert account.refused == [_header(OLD)]


def test_nodes_that_take_a_new_password_later_are_passed(
    accounts: tuple[Account, Account], opened: Open
) -> None:
    early, late = accounts
    run = opened(early, late)
    run.answers()
    early.password = run.kept.password = NEW
    assert run.answers()
    run.client.endpoints()  # asks the late one too
    assert all(run.answers() for _ in range(20))
    assert len(late.refused) <= 2
    late.password = NEW
    assert run.client.endpoints() == {early.server.url: None, late.server.url: None}


def _renewed(accounts: tuple[Account, Account], opened: Open) -> Opened:
    """A run whose cluster has a new password."""
    run = opened(*accounts)
    run.answers()
    run.client.endpoints()
    for account in accounts:
        account.password = NEW
    return run


def test_a_wrong_new_secret_is_sent_once_to_each_endpoint(
    accounts: tuple[Account, Account], opened: Open
) -> None:
    run = _renewed(accounts, opened)
    run.kept.password = WRONG
    run.fails(59)
    refused = [header for account in accounts for header in account.refused]
    assert sorted(refused) == sorted([_header(OLD), *[_header(WRONG)] * 2])
    run.kept.password, run.kept.changed = NEW, True
    assert run.answers()


def test_a_wrong_secret_that_the_source_shows_at_once(
    accounts: tuple[Account, Account], opened: Open
) -> None:
    run = _renewed(accounts, opened)
    run.kept.password, run.kept.changed = WRONG, True
    run.fails(20)
    sent = [header for account in accounts for header in account.refused]
    assert sent.count(_header(WRONG)) <= 1 + len(accounts), sent
    assert sent.count(_header(OLD)) == 1


def test_a_new_secret_replaced_within_a_minute_is_refused(account: Account, opened: Open) -> None:
    run = opened(account)
    run.answers()
    account.password = run.kept.password = NEW
    assert run.answers()
    account.password = THIRD
    run.fails(30)
    assert account.refused == [_header(OLD), _header(NEW)]
    run.kept.password, run.kept.changed = THIRD, True
    assert run.answers()


@pytest.mark.parametrize("at_first", [True, False])
def test_a_node_that_alone_refuses_is_the_last_to_be_asked(
    accounts: tuple[Account, Account], opened: Open, *, at_first: bool
) -> None:
    broken, good = accounts
    run = opened(broken, good, renewed=False)
    assert at_first or run.answers()
    broken.password = NEW
    assert not run.answers()
    assert at_first or not run.answers()  # nothing is sent, so it changes no order
    run.clock.time += 60.0
    assert all(run.answers() for _ in range(5))
    assert len(broken.refused) == 1


def test_an_endpoint_without_a_connection_uses_up_no_try(
    accounts: tuple[Account, Account], opened: Open
) -> None:
    gone, there = accounts
    run = opened(there, gone, renewed=False)
    run.answers()
    there.password = NEW
    assert not run.answers()  # from now on the other one is asked first
    gone.server.close()
    there.password = OLD
    run.clock.time += 60.0
    assert run.answers()


def test_a_right_that_is_taken_away_is_no_refused_login(account: Account, opened: Open) -> None:
    run = opened(account)
    run.answers()
    account.forbidden = True
    found = run.client.read(READ)
    assert isinstance(found, Fault)
    assert found.refusal == Refusal(
        endpoint=account.server.url,
        credentials="user ops",
        source="file:pw",
        status=403,
        call="GET /_cluster/health",
    )
    run.answers()
    assert (account.refused, run.kept.reads) == (["403", "403"], 1), "it may be another request's right"


def test_requests_without_credentials_are_not_held_back(account: Account) -> None:
    client = ElasticsearchClient(Access(endpoints=(account.server.url,)), clock=ManualClock())
    assert all(isinstance(client.read(READ), Fault) for _ in range(2))
    client.close()
    assert len(account.server.asked) == 2


@pytest.mark.parametrize(
    ("status", "kind", "refused"),
    [
        (503, "master_not_discovered_exception", None),
        (404, "index_not_found_exception", None),
        (403, "security_exception", 403),
        (503, "cluster_block_exception", 401),
        (429, "circuit_breaking_exception", 401),
    ],
)
def test_a_login_that_is_accepted_again_may_still_get_no_answer(
    status: int, kind: str, refused: int | None, account: Account, opened: Open
) -> None:
    run = opened(account, renewed=False)
    run.answers()
    account.password = NEW
    run.answers()
    account.password = OLD
    run.clock.time += 60.0
    body = {"error": {"type": kind, "reason": "not now"}}
    account.server.on(HEALTH, account.guarded(reply(body, status=status)))
    run.answers()
    found = run.client.read(READ)
    assert isinstance(found, Fault)
    assert (found.refusal.status if found.refusal else None) == refused


def test_a_secret_in_a_file_is_seen_to_change(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    file.write_text(OLD)
    resolver = SecretResolver(environment={}, folder=tmp_path, home=tmp_path)
    source = Source(resolver, parse_reference("file:pw"))
    assert not source.touched()
    file.write_text(NEW)
    os.utime(file, ns=(1, 1))
    assert source.touched()
    assert source.read() == NEW
    assert not source.touched()
    file.unlink()
    assert source.touched()
    assert source.read() is None
    (tmp_path / "next").write_text(THIRD)
    (tmp_path / "next").rename(file)  # as a mounted secret is replaced
    assert source.touched()
    assert source.read() == THIRD


def test_a_key_ring_that_is_locked_meanwhile_ends_nothing(tmp_path: Path) -> None:
    class KeyringLocked(Exception):  # noqa: N818  (as the package has it: no RuntimeError)
        pass

    def locked(_service: str, _user: str) -> str:
        raise KeyringLocked

    resolver = SecretResolver(environment={}, folder=tmp_path, home=tmp_path, keyring=locked)
    assert Source(resolver, parse_reference("keyring:es/ops")).read() is None
