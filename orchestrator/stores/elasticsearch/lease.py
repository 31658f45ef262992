"""The lease in cluster state: one index template per epoch, which matches no index and holds the record.

It is a template of the older kind (`_template`) on every version. Composable templates begin with 7.8: in the
middle of an upgrade, runs through different endpoints would use two kinds and would not see each other, and a
master below 7.8 does not keep them.

Index templates are in cluster state. So the lease needs no shard, which a restart could make unavailable, and
it survives until the last node is gone. The elected master refuses to create a template that exists (seen on
0.90, 2.4, 7.5, 8.19, 9.1, OpenSearch 2.19): only one of the runs that want epoch N gets it.

Limit: a heartbeat first *reads* that there is no higher epoch, then replaces the record of our own epoch. A
takeover between the reading and the write is seen only at the next heartbeat. The record stays correct, since
the highest epoch counts, but for one interval two runs may both act as the holder. To keep that gap small, a
new run waits for the expiry (90 s, heartbeats are 15 s apart). In addition, every stop needs a fresh lease.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Garbled, Reading, Unknown
from orchestrator.stores.elasticsearch import calls
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.dialect import NEWEST, Dialect
from orchestrator.stores.elasticsearch.faults import Answer, Fault
from orchestrator.stores.elasticsearch.fields import Malformed, given, mapping, reading, within
from orchestrator.stores.elasticsearch.request import Request
from orchestrator.stores.lease_record import decode, encode

PREFIX: Final = "orchestrate-lease-"
META_KEY: Final = "orchestrate"
UPDATE_SECONDS: Final = 10.0
"""Shorter than the heartbeat's interval (15 s): a late answer is a missed beat."""
_NAME: Final = re.compile(re.escape(PREFIX) + r"(\d+)")


def lease_body(record: LeaseRecord, dialect: Dialect = NEWEST) -> dict[str, Any]:
    """The template. Its pattern matches no index: their names cannot begin with a hyphen.

    The record is the text in the filter of an alias, which every version keeps as it is. (A template has no
    `_meta`, and a mapping's `_meta` needs a document type before 7.0, and none after.) A template before 1.1
    has no aliases: there the text is a setting.
    """
    pattern, content = f"-{PREFIX}{record.epoch}", json.dumps(encode(record))
    return {
        dialect.lease_pattern: [pattern] if dialect.lease_pattern == "index_patterns" else pattern,
        "order": 0,
        **(
            {"aliases": {META_KEY: {"filter": {"term": {META_KEY: content}}}}}
            if dialect.lease_in_alias
            else {"settings": {META_KEY: content}}
        ),
    }


class ElasticsearchLease:
    """`LeasePort` in an Elasticsearch or OpenSearch cluster.

    Args:
        client: the way to the cluster.
    """

    def __init__(self, client: ElasticsearchClient) -> None:
        self._client = client
        self._written: Any = None

    def read(self) -> Reading[LeaseRecord | None]:
        """The record with the highest epoch; None if there is none."""
        found = self._all()
        if isinstance(found, Unknown):
            return found
        if not found:
            return None
        epoch = max(found)
        record = decode(found[epoch])
        if isinstance(record, Unknown):
            return self._garbled(epoch, record.reason)
        if record.epoch != epoch:
            return self._garbled(epoch, f"its epoch is {record.epoch}")
        return record

    def _garbled(self, epoch: int, why: str) -> Garbled:
        path = self._request("DELETE", epoch).path
        return Garbled(
            reason=f"index template {PREFIX}{epoch} holds no record that this version can read ({why})",
            remedy=(
                "if a run of a later version wrote it, use that version. With the state file of the run that "
                "wrote it, `orchestrate restore RUN` needs no record; without, restore by hand (docs/how-to/"
                f'repair-by-hand.md, "The record cannot be read"). Then remove it: DELETE {path}'
            ),
        )

    def create(self, record: LeaseRecord) -> ActionResult:
        """Create this epoch; `Refused` if another run was first or a higher epoch exists."""
        found = self._all()
        if isinstance(found, Unknown):
            return Refused(reason=found.reason)
        if found and max(found) >= record.epoch:
            return Refused(reason=f"epoch {max(found)} of the lease is taken already")
        return self._put(record, create="true")

    def write(self, record: LeaseRecord) -> ActionResult:
        """Replace the record of our own epoch; `Refused` if another run now holds the lease."""
        current = self.read()
        if isinstance(current, Unknown):
            return Refused(reason=current.reason)
        if current is None:
            return Refused(reason="the lease is gone: somebody removed it")
        if (current.epoch, current.run) != (record.epoch, record.run):
            return Refused(reason=f"the lease is run {current.run}'s of {current.owner} now")
        return self._put(record, create="false")

    def remove(self, epoch: int) -> ActionResult:
        """Remove every record up to this epoch, the highest last. Missing records count as removed."""
        found = self._all()
        if isinstance(found, Unknown):
            return Refused(reason=found.reason)
        for each in sorted(each for each in found if each <= epoch):
            outcome = self._client.write(self._request("DELETE", each, accept=frozenset({404})))
            result = _result(outcome)
            if not isinstance(result, Done):
                return result
        return Done()

    def _all(self) -> Reading[dict[int, Any]]:
        """All records, by epoch."""
        dialect = self._client.dialect_to_write()
        if isinstance(dialect, Fault):
            return Unknown(reason=dialect.reason)
        outcome = self._client.read(calls.leases(dialect, PREFIX, UPDATE_SECONDS))
        if isinstance(outcome, Fault):
            return Unknown(reason=f"the lease in the cluster could not be read: {outcome.reason}")
        return reading("lease", lambda: _records(outcome))

    def _put(self, record: LeaseRecord, *, create: str) -> ActionResult:
        body = lease_body(record, self._spoken())
        request = self._request("PUT", record.epoch, params={"create": create}, body=body)
        begun = self._client.own_updates.begin()
        result = _result(self._client.write(request))
        if isinstance(result, Done):
            if body != self._written:  # the same again may leave the cluster's state as it is
                self._client.own_updates.acknowledge(begun)
            self._written = body
        return result

    def _spoken(self) -> Dialect:
        """The dialect of the cluster; that of the newest version if it is unknown."""
        dialect = self._client.dialect_to_write()
        return NEWEST if isinstance(dialect, Fault) else dialect

    def _request(
        self,
        method: str,
        epoch: int,
        *,
        params: dict[str, str] | None = None,
        body: Any = None,
        accept: frozenset[int] = frozenset(),
    ) -> Request:
        spoken = self._spoken()
        return Request(
            method=method,
            path=f"/{calls.LEASE_TEMPLATES}/{PREFIX}{epoch}",
            params=(params or {}) | {spoken.master_timeout: calls.seconds(UPDATE_SECONDS)},
            body=body,
            accept=accept,
            silence=UPDATE_SECONDS + calls.ANSWER_MARGIN_SECONDS,
        )


def _records(answer: Answer) -> dict[int, Any]:
    """The records by epoch. Templates are listed by name; none is an empty object, by 404."""
    found: dict[int, Any] = {}
    for name, value in mapping(answer.body, "the answer").items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise Malformed(f"answered with {answer.status}: {str(answer.body)[:200]}")
        written = given(
            within(value, "aliases", META_KEY, "filter", "term", META_KEY),
            within(value, "settings", f"index.{META_KEY}"),  # 0.90 answers so
        )
        try:
            found[int(match[1])] = json.loads(written)
        except (TypeError, ValueError):
            found[int(match[1])] = written  # no record: it is reported as one that cannot be read
    return found


def _result(outcome: Answer | Fault) -> ActionResult:
    if isinstance(outcome, Fault):
        return Refused(reason=outcome.reason) if outcome.nothing_done else InDoubt(reason=outcome.reason)
    acknowledged = isinstance(outcome.body, dict) and outcome.body.get("acknowledged") is True
    if acknowledged or outcome.status == 404:  # noqa: PLR2004  (HTTP's own number; accepted of a removal alone)
        return Done()
    return InDoubt(reason="the change of the lease was accepted, but not confirmed by every node in time")
