"""The lease in cluster state: one template per epoch, which applies to no index and holds the record.

Templates are in cluster state. So the lease needs no shard, which a restart could make unavailable, and it
survives until the last node is gone. The elected master refuses to create a template that exists: only one of
the runs that want epoch N gets it in one form.

There are two forms (`Dialect.lease_forms`): a component template, which has no pattern, so that no other
template can forbid it; and, while a node is older than 7.8, a legacy template. The lowest version among the
nodes decides: any of them may be elected, and a master below 7.8 drops component templates. Runs that know
different versions of one cluster may use different forms. So every form is read, and a run holds a new epoch
only after one cluster state has shown its record and no other record of that epoch or a higher one: of two
runs that create two forms at once, at least one sees the other's record, and removes its own.

Limit: a heartbeat first *reads* that there is no higher epoch, then replaces the record of our own epoch. A
takeover between the reading and the write is seen only at the next heartbeat. The record stays correct, since
the highest epoch counts, but for one interval two runs may both act as the holder. To keep that gap small, a
new run waits for the expiry (90 s, heartbeats are 15 s apart). In addition, every stop needs a fresh lease.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import NEWEST, Dialect
from orchestrator.elasticsearch.eras import COMPONENT_TEMPLATE, LEGACY_TEMPLATE
from orchestrator.elasticsearch.faults import Answer, Fault
from orchestrator.elasticsearch.fields import (
    Malformed,
    ReadFailed,
    answer_of,
    given,
    items,
    mapping,
    reading,
    text,
    within,
)
from orchestrator.lease_record import decode, encode
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Garbled, Reading, Unknown
from orchestrator.next_command import next_command
from orchestrator.untrusted_json import parsed

PREFIX: Final = "orchestrate-lease-"
TRIAL: Final = "orchestrate-validate-"
"""Records with this prefix are tests: no run of any version reads them."""
META_KEY: Final = "orchestrate"
UPDATE_SECONDS: Final = 10.0
"""Shorter than the heartbeat's interval (15 s): a late answer is a missed beat."""
_NAME: Final = re.compile(re.escape(PREFIX) + r"(\d+)")
_KIND: Final = {COMPONENT_TEMPLATE: "component template", LEGACY_TEMPLATE: "index template"}


def lease_body(record: LeaseRecord, form: str = COMPONENT_TEMPLATE) -> dict[str, Any]:
    """The template in a form."""
    content = json.dumps(encode(record))
    if form == COMPONENT_TEMPLATE:
        return {"template": {}, "_meta": {META_KEY: content}}
    return _legacy_body(f"-{PREFIX}{record.epoch}", content)


def _legacy_body(pattern: str, content: str) -> dict[str, Any]:
    """The legacy template. Its pattern matches no index: their names cannot begin with a hyphen.

    The record is the text in the filter of an alias, which every version keeps as it is. (A legacy template
    has no `_meta`, and a mapping's `_meta` needs a document type before 7.0, and none after.)
    """
    return {
        "index_patterns": [pattern],
        "order": 0,
        "aliases": {META_KEY: {"filter": {"term": {META_KEY: content}}}},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A template of the lease."""

    epoch: int
    form: str
    content: Any = None  # the JSON of its record; another text or None if there is none

    def record(self) -> LeaseRecord | Garbled:
        record = decode(self.content)
        if isinstance(record, LeaseRecord) and record.epoch == self.epoch:
            return record
        name = f"{PREFIX}{self.epoch}"
        why = record.reason if isinstance(record, Unknown) else f"its epoch is {record.epoch}"
        return Garbled(
            reason=f"{_KIND[self.form]} {name} holds no record that this version can read ({why})",
            remedy=(
                "if a run of a later version wrote it, use that version. With the state file of the run that "
                f"wrote it, `{next_command('restore', 'RUN')}` needs no record; without, restore by hand "
                f"(`{next_command('explain', 'repair-by-hand')}`: the record is unreadable). Then remove it: "
                f"DELETE /{self.form}/{name}"
            ),
        )

    def is_of(self, owner: LeaseRecord) -> bool:
        """Whether the process that wrote the record of that epoch, and no other, wrote this one."""
        record = self.record()
        return isinstance(record, LeaseRecord) and _author(record) == _author(owner)


class ElasticsearchLease:
    """`LeasePort` in an Elasticsearch or OpenSearch cluster.

    Args:
        client: the way to the cluster.
    """

    def __init__(self, client: ElasticsearchClient) -> None:
        self._client = client
        self._written: Any = None
        self._unproven: LeaseRecord | None = None

    def read(self) -> Reading[LeaseRecord | None]:
        """The record with the highest epoch; None if there is none.

        Of two records of one epoch, a refreshed one counts: a run that was ended between the creation and its
        check may have left the other. A record of ours is returned only after that check.
        """
        unproven = self._unproven
        if unproven is not None and isinstance(checked := self._checked(unproven), InDoubt):
            return Unknown(reason=checked.reason)
        kept = reading(self._all)
        if isinstance(kept, Unknown):
            return kept
        if self._unproven is not None:
            kept = [each for each in kept if not each.is_of(self._unproven)]
        highest = [each.record() for each in kept if each.epoch == max(every.epoch for every in kept)]
        garbled = next((each for each in highest if isinstance(each, Garbled)), None)
        records = [each for each in highest if isinstance(each, LeaseRecord)]
        return garbled or max(records, key=lambda each: each.heartbeat, default=None)

    def create(self, record: LeaseRecord) -> ActionResult:
        """Create this epoch; `Refused` if another run was first, or at the same time in another form."""
        kept = reading(self._all)
        if isinstance(kept, Unknown):
            return Refused(reason=kept.reason)
        epoch = max((each.epoch for each in kept), default=0)
        if epoch >= record.epoch:
            return _taken(epoch)
        spoken = self._spoken()
        if len(spoken.lease_forms) > 1:
            self._unproven = record
        created = self._put(record, spoken.lease_forms[0], create="true")
        if isinstance(created, Refused) or self._unproven is None:
            return created
        unseen = InDoubt(reason="the lease was created, and the cluster does not show its record")
        return self._checked(record) or (created if isinstance(created, InDoubt) else unseen)

    def write(self, record: LeaseRecord) -> ActionResult:
        """Replace the record of our own epoch in its form; `Refused` if another run now holds the lease."""
        kept = reading(self._all)
        if isinstance(kept, Unknown):
            return Refused(reason=kept.reason)
        ours = next((each for each in kept if each.is_of(record)), None)
        if ours is not None and ours.epoch == max(each.epoch for each in kept):
            return self._put(record, ours.form, create="false")
        current = self.read()
        if isinstance(current, Unknown):
            return Refused(reason=current.reason)
        if current is None:
            return Refused(reason="the lease is gone: somebody removed it")
        return Refused(reason=f"the lease is run {current.run}'s of {current.owner} now")

    def remove(self, epoch: int) -> ActionResult:
        """Remove every record up to this epoch, the highest last. Missing records count as removed."""
        kept = reading(self._all)
        if isinstance(kept, Unknown):
            return Refused(reason=kept.reason)
        for each in sorted(kept, key=lambda each: each.epoch):
            result = self._delete(each) if each.epoch <= epoch else Done()
            if not isinstance(result, Done):
                return result
        return Done()

    def try_out(self) -> ActionResult:
        """Create a record as a new run would, under a name that no run reads, and remove it.

        `Refused` if a run could not take or release its lease. Removes what an interrupted call left, too.
        """
        form = self._spoken().lease_forms[0]
        body = lease_body(LeaseRecord(epoch=0, run="", owner="", process="", started=""), form)
        request = self._request("PUT", f"{TRIAL}{uuid4().hex}", form, params={"create": "true"}, body=body)
        created = _result(self._client.write(request))
        if isinstance(created, Refused):
            return created
        request = self._request("DELETE", f"{TRIAL}*", form, accept=frozenset({404}))
        removed = _result(self._client.write(request))
        return removed if isinstance(created, Done) else created

    def _checked(self, ours: LeaseRecord) -> ActionResult | None:
        """Whether the record that we created counts. None if it is not there.

        `Refused` if another run created that epoch or a higher one; then ours is removed. The names of the
        templates suffice: a cluster state before 7.8 does not list the aliases of a legacy template.
        """
        try:
            kept = self._all()
            outcome = self._client.read(calls.leases_at_once(self._client.limits, PREFIX))
            if isinstance(outcome, Fault):
                return InDoubt(reason=f"the lease was created and could not be read: {outcome.reason}")
            with answer_of("lease"):
                named = frozenset(_named(outcome.body))
        except ReadFailed as error:
            return InDoubt(reason=str(error))
        own = [each for each in kept if each.is_of(ours)]
        places = {(each.epoch, each.form) for each in own}
        rivals = {place for place in named if place[0] >= ours.epoch} - places
        if rivals:
            for each in own:
                self._delete(each)
            return _taken(max(epoch for epoch, _ in rivals))
        if not own or not places <= named:
            return None
        self._unproven = None
        return Done()

    def _all(self) -> list[_Kept]:
        """All records of every form.

        Raises:
            ReadFailed: one of the forms was not read.
        """
        dialect = self._client.dialect_to_write()
        if isinstance(dialect, Fault):
            raise ReadFailed(dialect.unknown())
        kept: list[_Kept] = []
        for form in dialect.lease_forms:
            present = form == dialect.lease_forms[0]
            outcome = self._client.read(calls.leases(form, PREFIX, UPDATE_SECONDS, present=present))
            if isinstance(outcome, Fault):
                raise ReadFailed(outcome.unknown("the lease in the cluster could not be read"))
            with answer_of("lease"):
                kept += _records(outcome, form)
        return kept

    def _put(self, record: LeaseRecord, form: str, *, create: str) -> ActionResult:
        body = lease_body(record, form)
        request = self._request("PUT", f"{PREFIX}{record.epoch}", form, params={"create": create}, body=body)
        begun = self._client.own_updates.begin()
        result = _result(self._client.write(request))
        if isinstance(result, Done):
            if body != self._written:  # the same again may leave the cluster's state as it is
                self._client.own_updates.acknowledge(begun)
            self._written = body
        return result

    def _delete(self, kept: _Kept) -> ActionResult:
        request = self._request("DELETE", f"{PREFIX}{kept.epoch}", kept.form, accept=frozenset({404}))
        return _result(self._client.write(request))

    def _spoken(self) -> Dialect:
        """The dialect of the cluster; that of the newest version if it is unknown."""
        dialect = self._client.dialect_to_write()
        return NEWEST if isinstance(dialect, Fault) else dialect

    def _request(
        self,
        method: str,
        name: str,
        form: str,
        *,
        params: dict[str, str] | None = None,
        body: Any = None,
        accept: frozenset[int] = frozenset(),
    ) -> HttpRequest:
        return HttpRequest(
            method=method,
            path=f"/{form}/{name}",
            params=(params or {}) | {"master_timeout": calls.seconds(UPDATE_SECONDS)},
            body=body,
            accept=accept,
            silence=UPDATE_SECONDS + calls.ANSWER_MARGIN_SECONDS,
        )


def _author(record: LeaseRecord) -> tuple[int, str, str]:
    return record.epoch, record.run, record.process


def _taken(epoch: int) -> Refused:
    return Refused(reason=f"epoch {epoch} of the lease is taken already")


def _records(outcome: Answer, form: str) -> Iterator[_Kept]:
    """The records in an answer to `calls.leases`. A node without the form has no handler for its path."""
    error = outcome.body.get("error") if isinstance(outcome.body, dict) else None
    said = error.get("reason") if isinstance(error, dict) else error
    # 405 of a node of 6.8 or 7.5, 400 of others; 500 of a later node whose master is one of 7.5.
    if isinstance(said, str) and ("for uri" in said or said.startswith("No handler for action")):
        return
    if form == LEGACY_TEMPLATE:
        for name, value in mapping(outcome.body, "the answer").items():
            written = within(value, "aliases", META_KEY, "filter", "term", META_KEY)
            yield _Kept(epoch=_epoch(name, outcome), form=form, content=_content(written))
        return
    for each in items(within(outcome.body, "component_templates"), "component_templates"):
        name = text(within(each, "name"), "the name of a template")
        written = within(each, "component_template", "_meta", META_KEY)
        yield _Kept(epoch=_epoch(name, outcome), form=form, content=_content(written))


def _epoch(name: str, outcome: Answer) -> int:
    match = _NAME.fullmatch(name)
    if match is None:
        raise Malformed(f"answered with {outcome.status}: {str(outcome.body)[:200]}")
    return int(match[1])


def _content(written: Any) -> Any:
    """The record's JSON; what is none is reported as a record that cannot be read."""
    try:
        return parsed(written)
    except ValueError:
        return written


def _named(body: Any) -> Iterator[tuple[int, str]]:
    """Epoch and form of the records in an answer to `calls.leases_at_once`."""
    text(within(body, "cluster_name"), "cluster_name")  # an answer without it is no cluster state
    component = COMPONENT_TEMPLATE.removeprefix("_")
    for form, path in ((LEGACY_TEMPLATE, ("templates",)), (COMPONENT_TEMPLATE, (component, component))):
        for name in mapping(given(within(body, "metadata", *path), {}), "templates"):
            if match := _NAME.fullmatch(name):
                yield int(match[1]), form


def _result(outcome: Answer | Fault) -> ActionResult:
    if isinstance(outcome, Fault):
        return outcome.refused() if outcome.nothing_done else InDoubt(reason=outcome.reason)
    acknowledged = isinstance(outcome.body, dict) and outcome.body.get("acknowledged") is True
    if acknowledged or outcome.status == 404:  # noqa: PLR2004  (HTTP's own number; accepted of a removal alone)
        return Done()
    return InDoubt(reason="the change of the lease was accepted, but not confirmed by every node in time")
