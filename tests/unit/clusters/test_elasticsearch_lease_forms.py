"""The two forms of the lease: both are read; of two runs that create both at once, one or none holds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import Dialect, dialect_for
from orchestrator.elasticsearch.eras import COMPONENT_TEMPLATE, LEGACY_TEMPLATE
from orchestrator.elasticsearch.faults import Answer, Fault
from orchestrator.elasticsearch.lease import PREFIX, ElasticsearchLease, _records, lease_body
from orchestrator.lease_record import encode
from orchestrator.model.action import Done, InDoubt, Refused, SettingChange
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Level
from orchestrator.model.reading import Garbled, Unknown
from tests.cli.small_cluster import SmallCluster
from tests.fakes.template_cluster import TemplateClient, TemplateCluster
from tests.unit.clusters.recordings import OLD as OLD_VERSIONS
from tests.unit.clusters.recordings import dialect_of, reshaped

NEW, OLD, OLDEST = (dialect_for("elasticsearch", version) for version in ("9.1.0", "7.5.2", "5.6.16"))
LEGACY, COMPONENT = LEGACY_TEMPLATE, COMPONENT_TEMPLATE
FIRST = LeaseRecord(epoch=1, run="r1", owner="ann@bastion", process="p1", started="2026-11-01T00:00:00Z")
OTHER = replace(FIRST, run="r2", owner="ben@laptop", process="p2")


def lease(cluster: TemplateCluster, dialect: Dialect = NEW) -> ElasticsearchLease:
    client: Any = TemplateClient(cluster.serve, dialect)
    return ElasticsearchLease(client)


def keep(cluster: TemplateCluster, form: str, record: LeaseRecord) -> None:
    """A record that another run wrote."""
    cluster.kept[form][f"{PREFIX}{record.epoch}"] = json.loads(json.dumps(lease_body(record, form)))


@pytest.fixture
def cluster() -> TemplateCluster:
    return TemplateCluster()


def test_the_version_alone_decides_on_the_form(cluster: TemplateCluster) -> None:
    for dialect, form in ((NEW, COMPONENT), (OLD, LEGACY), (OLDEST, LEGACY)):
        assert lease(cluster, dialect).create(FIRST) == Done()
        assert list(cluster.kept[form]) == [f"{PREFIX}1"]
        assert lease(cluster, dialect).read() == FIRST
        assert lease(cluster, dialect).remove(1) == Done()
        assert cluster.kept == TemplateCluster().kept


def test_lease_body_can_match_no_index() -> None:
    assert lease_body(FIRST).keys() == {"template", "_meta"}
    assert lease_body(FIRST)["template"] == {}
    body = lease_body(FIRST, form=LEGACY)
    (pattern,) = body["index_patterns"]
    assert pattern.startswith("-"), "no index may be called so"
    assert "*" not in pattern
    assert set(body) == {"index_patterns", "order", "aliases"}, "no settings or mappings"


def test_a_lease_comes_back_from_every_old_version(subtests: pytest.Subtests) -> None:
    change = SettingChange(level=Level.PERSISTENT, key="a", found=None, wanted='pri"maries')
    record = replace(FIRST, epoch=3, debts=(change,))
    for version in OLD_VERSIONS:
        with subtests.test(version):
            dialect, path = dialect_of(version), f"/{LEGACY}/{PREFIX}3"
            request = HttpRequest(method="PUT", path=path, body=lease_body(record, LEGACY))
            sent = dialect.spelled(request).body
            assert sent is not None
            # What a node answers: the template by its name, with the alias as it was sent (seen on each).
            flat = {f"index.{key}": value for key, value in sent.get("settings", {}).items()}
            kept = {f"{PREFIX}3": {**sent, "settings": flat, "mappings": {}}}
            read = reshaped(version, calls.leases(LEGACY, PREFIX, 5.0, present=True), kept)
            (found,) = _records(Answer(status=200, body=read), LEGACY)
            assert (found.epoch, found.content) == (3, encode(record))
            assert ("index_patterns" in sent) is (version[0] in "67o")
    assert list(_records(Answer(status=404, body={}), LEGACY)) == []


@pytest.mark.parametrize(("theirs", "ours"), [(LEGACY, NEW), (COMPONENT, OLD)])
def test_a_record_of_the_other_form_counts(cluster: TemplateCluster, theirs: str, ours: Dialect) -> None:
    keep(cluster, theirs, replace(OTHER, epoch=4))
    port = lease(cluster, ours)
    assert port.read() == replace(OTHER, epoch=4)
    assert isinstance(port.create(replace(FIRST, epoch=4)), Refused)
    assert port.create(replace(FIRST, epoch=5)) == Done()
    assert port.read() == replace(FIRST, epoch=5)
    keep(cluster, theirs, replace(OTHER, epoch=6))
    assert isinstance(port.write(replace(FIRST, epoch=5, heartbeat=1)), Refused), (
        "taken over in the other form"
    )
    assert port.read() == replace(OTHER, epoch=6)
    assert port.remove(5) == Done()
    assert port.read() == replace(OTHER, epoch=6)
    assert port.remove(6) == Done()
    assert cluster.kept == {LEGACY: {}, COMPONENT: {}}


@pytest.mark.parametrize("form", [LEGACY, COMPONENT])
def test_a_heartbeat_keeps_the_form_of_its_record(cluster: TemplateCluster, form: str) -> None:
    """The dialect of a run changes while it upgrades the last node from 7.7."""
    keep(cluster, form, FIRST)
    for dialect in (NEW, OLD):
        beat = replace(FIRST, heartbeat=1 + (dialect is OLD))
        assert lease(cluster, dialect).write(beat) == Done()
        assert lease(cluster, dialect).read() == beat
    assert [
        len(kept) for kept in (cluster.kept[form], cluster.kept[{LEGACY: COMPONENT}.get(form, LEGACY)])
    ] == [1, 0]


@pytest.mark.parametrize("by_master", [False, True])
def test_a_server_without_component_templates_has_none(
    cluster: TemplateCluster,
    by_master: bool,  # noqa: FBT001  (whether a later node passes on what its master of 7.5 answers)
) -> None:
    cluster.without_components = True
    if by_master:
        reason = "No handler for action [cluster:admin/component_template/get]"
        error = {"type": "illegal_state_exception", "reason": reason}
        cluster.no_handler = 500, {"error": error, "status": 500}
    assert lease(cluster, OLD).create(FIRST) == Done()
    assert lease(cluster, OLD).write(replace(FIRST, heartbeat=1)) == Done()
    assert isinstance(lease(cluster, NEW).read(), Unknown), "9.1 has them: this answer is an error"


def test_before_six_no_other_form_is_asked_for(cluster: TemplateCluster) -> None:
    assert lease(cluster, OLDEST).create(FIRST) == Done()
    assert {request.path.split("/")[1] for request in cluster.sent} == {LEGACY}


def test_the_lease_is_read_in_every_form(client: Callable[..., ElasticsearchClient]) -> None:
    with SmallCluster(version="2.19.0") as running:
        ElasticsearchLease(client(running.url)).read()
        paths = [path for path in running.paths() if "orchestrate-lease" in path]
    assert paths == [f"/{form}/orchestrate-lease-*" for form in (COMPONENT, LEGACY)]


def test_what_a_killed_run_left_beside_the_holder_does_not_count(cluster: TemplateCluster) -> None:
    """It was killed between its creation and the check, in the other form."""
    for theirs, ours in ((LEGACY, COMPONENT), (COMPONENT, LEGACY)):
        cluster.kept = {LEGACY: {}, COMPONENT: {}}
        keep(cluster, theirs, OTHER)
        keep(cluster, ours, FIRST)
        beat = replace(FIRST, heartbeat=1)
        assert lease(cluster).write(beat) == Done()
        assert lease(cluster).read() == beat
        assert lease(cluster).create(replace(FIRST, epoch=2, run="r3")) == Done()
        assert lease(cluster).remove(2) == Done()
        assert cluster.kept == {LEGACY: {}, COMPONENT: {}}


def test_a_record_that_cannot_be_read_is_named_with_its_form(cluster: TemplateCluster) -> None:
    for form, kind in ((LEGACY, "index template"), (COMPONENT, "component template")):
        cluster.kept = {LEGACY: {}, COMPONENT: {}}
        keep(cluster, form, replace(FIRST, epoch=7))
        cluster.kept[form][f"{PREFIX}8"] = cluster.kept[form].pop(f"{PREFIX}7")
        read = lease(cluster).read()
        assert isinstance(read, Garbled)
        assert f"{kind} {PREFIX}8 holds no record" in read.reason
        assert f"DELETE /{form}/{PREFIX}8" in read.remedy
        assert isinstance(lease(cluster).create(replace(FIRST, epoch=8)), Refused)


def late_lease(cluster: TemplateCluster, late: list[HttpRequest]) -> ElasticsearchLease:
    """Its first write is on its way when its answer is given up."""

    def send(request: HttpRequest) -> Answer | Fault:
        if request.method == "PUT" and not late:
            late.append(request)
            return Fault(reason="no answer", nothing_done=False)
        return cluster.serve(request)

    client: Any = TemplateClient(send, NEW)
    return ElasticsearchLease(client)


def test_a_creation_in_doubt_that_arrived_is_ours(cluster: TemplateCluster) -> None:
    late: list[HttpRequest] = []
    port = late_lease(cluster, late)
    assert isinstance(port.create(FIRST), InDoubt)
    assert port.read() is None
    cluster.serve(late[0])
    assert port.read() == FIRST
    assert port.write(replace(FIRST, heartbeat=1)) == Done()


@pytest.mark.parametrize("rival", [OTHER, replace(OTHER, epoch=2)])
def test_a_creation_in_doubt_gives_way_to_the_holder(cluster: TemplateCluster, rival: LeaseRecord) -> None:
    late: list[HttpRequest] = []
    port = late_lease(cluster, late)
    assert isinstance(port.create(FIRST), InDoubt)
    assert lease(cluster, OLD).create(rival) == Done()
    cluster.serve(late[0])
    assert port.read() == rival
    assert cluster.kept[COMPONENT] == {}, "what gave way is removed"


def test_a_record_that_could_not_be_removed_is_not_ours(cluster: TemplateCluster) -> None:
    """The role may lack the right, or the answer was lost: the other run's record counts."""

    def send(request: HttpRequest) -> Answer | Fault:
        if request.method == "PUT":
            keep(cluster, LEGACY, OTHER)
        if request.method == "DELETE":
            return Fault(reason="403", nothing_done=True)
        return cluster.serve(request)

    client: Any = TemplateClient(send, NEW)
    port = ElasticsearchLease(client)
    assert isinstance(port.create(FIRST), Refused)
    assert port.read() == OTHER


# Every interleaving -----------------------------------------------------------------------------------------


class _Paused(BaseException):
    """The run waits for the answer to its next request."""


@dataclass
class _Run:
    """A run that takes the lease as `taking.take` does; each step serves one more of its requests."""

    record: LeaseRecord
    dialect: Dialect
    loses: bool = False  # the answer to its first write; the write itself arrives later or never
    answers: list[Answer | Fault] = field(default_factory=list)
    said: str = ""  # all answers as text
    held: bool | None = None  # whether it holds the lease; None while it has not ended

    def step(self, cluster: TemplateCluster, late: list[HttpRequest]) -> None:
        """Take the steps so far again, with the same answers, and one more."""
        sent, answered = 0, len(self.answers)

        def send(request: HttpRequest) -> Answer | Fault:
            nonlocal sent
            sent += 1
            if sent <= answered:
                return self.answers[sent - 1]
            if sent > answered + 1:
                raise _Paused
            lost = self.loses and request.method == "PUT"
            if lost:
                late.append(request)
                self.loses = False
            self.answers.append(Fault(reason="lost", nothing_done=False) if lost else cluster.serve(request))
            self.said += f"{self.answers[-1]}"
            return self.answers[-1]

        client: Any = TemplateClient(send, self.dialect)
        with suppress(_Paused):
            self.held = self._holds(ElasticsearchLease(client))

    def _holds(self, port: ElasticsearchLease) -> bool:
        for _ in range(2):  # `take` reads again after a doubt, for a minute
            result = port.create(self.record)
            if isinstance(result, Done):
                return True
            found = port.read()
            if isinstance(found, LeaseRecord):
                return (found.run, found.process) == (self.record.run, self.record.process)
            if isinstance(result, Refused):
                return False
            assert isinstance(result, InDoubt)
        return False


def interleavings(cluster: TemplateCluster, *runs: _Run) -> Iterator[tuple[bool | None, ...]]:
    """Whether each run holds the lease, in every state that any order of their steps leads to."""
    stack: list[tuple[TemplateCluster, tuple[_Run, ...], list[HttpRequest]]] = [(cluster, runs, [])]
    seen: set[Any] = set()
    while stack:
        now, every, late = stack.pop()
        key = (json.dumps(now.kept), len(late), *((each.said, each.held) for each in every))
        if key in seen:
            continue
        seen.add(key)
        yield tuple(each.held for each in every)
        for number in [number for number, each in enumerate(every) if each.held is None] + [-1] * len(late):
            kept = {form: dict(found) for form, found in now.kept.items()}
            after, waiting = TemplateCluster(kept=kept), list(late)
            them = tuple(replace(each, answers=list(each.answers)) for each in every)
            if number < 0:
                after.serve(waiting.pop())
            else:
                them[number].step(after, waiting)
            stack.append((after, them, waiting))


@pytest.mark.parametrize("before", [None, LEGACY, COMPONENT])
def test_of_two_runs_with_two_forms_at_most_one_holds_the_lease(
    cluster: TemplateCluster, before: str | None
) -> None:
    if before is not None:
        keep(cluster, before, replace(OTHER, run="r0", process="p0", epoch=4))
    epoch = 1 if before is None else 5
    runs = (
        _Run(record=replace(FIRST, epoch=epoch), dialect=NEW),
        _Run(record=replace(OTHER, epoch=epoch), dialect=OLD),
    )
    found = set(interleavings(cluster, *runs))
    assert (True, True) not in found
    assert {(True, False), (False, True), (False, False)} <= found, "each may win, and both may lose"


@pytest.mark.part(name="long")  # two seconds each; the tests above have the two orders that matter
@pytest.mark.parametrize("older", [False, True])
def test_a_creation_in_doubt_is_checked_before_it_counts(cluster: TemplateCluster, *, older: bool) -> None:
    """It may arrive at any later time, or never."""
    runs = (_Run(record=FIRST, dialect=NEW, loses=not older), _Run(record=OTHER, dialect=OLD, loses=older))
    found = set(interleavings(cluster, *runs))
    assert (True, True) not in found
    assert {(True, False), (False, True), (False, False)} <= found


@pytest.mark.parametrize("dialect", [NEW, OLD])
def test_of_two_runs_with_one_form_one_holds_the_lease(cluster: TemplateCluster, dialect: Dialect) -> None:
    runs = (_Run(record=FIRST, dialect=dialect), _Run(record=OTHER, dialect=dialect))
    ended = {each for each in interleavings(cluster, *runs) if None not in each}
    assert ended == {(True, False), (False, True)}


def test_a_higher_epoch_that_was_created_meanwhile_wins(cluster: TemplateCluster) -> None:
    """The other run had read a record of epoch 4 before that was removed."""
    runs = (_Run(record=FIRST, dialect=NEW), _Run(record=replace(OTHER, epoch=5), dialect=OLD))
    ended = {each for each in interleavings(cluster, *runs) if None not in each}
    assert (False, True) in ended
