"""Send each verb to a cluster as one request, and interpret the answer; and the long polls.

`describe` and `perform` are made from the same requests, so that a plan shows what will be sent. In a long
poll the cluster answers when it is ready, so no repeated requests are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, assert_never

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.bulk import force_merge, merge_asked, merge_request
from orchestrator.elasticsearch.calls import ONLY_NAMED, PROBE_KEY, AnswerBytes, HttpRequest, get, quoted
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import Dialect
from orchestrator.elasticsearch.faults import Answer, Fault
from orchestrator.elasticsearch.fields import ReadFailed
from orchestrator.elasticsearch.parse import parse_archived
from orchestrator.elasticsearch.parse_cluster import parse_index_uuids
from orchestrator.model.action import (
    ActionResult,
    ClearVotingExclusions,
    Done,
    ExcludeFromVoting,
    Flush,
    ForceMerge,
    IndexAction,
    InDoubt,
    ProbeSettings,
    RefreshIndex,
    Refused,
    RetryFailed,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.archived import what_to_do
from orchestrator.model.observation import ClusterWatch, CopiesActive, Level, MasterElected, NodesJoined
from orchestrator.model.reading import Seconds
from orchestrator.model.upgrade import ML_UPGRADE_MODE

UPDATE_SECONDS: Final = 30.0
"""How long a change of the cluster state may wait in the master's queue, and for the nodes to apply it."""
FLUSH_SECONDS: Final = 120.0
"""A flush writes the data in memory to disk, on every shard. Only the speed of recovery depends on it."""
OfIndex: TypeAlias = SetReplicas | ForceMerge | RefreshIndex | SetIndexSettings
"""Verbs about one index, which must still be the one that was read."""


def request_for(action: IndexAction) -> HttpRequest:
    """The request for this action, in the newest form."""
    allowed = {"timeout": calls.seconds(UPDATE_SECONDS)}
    waits = {"master_timeout": calls.seconds(UPDATE_SECONDS)} | allowed
    match action:
        case ProbeSettings():
            return _change("PUT", "/_cluster/settings", waits, {"persistent": {PROBE_KEY: None}})
        case WriteSettings(changes=(SettingChange(key=key, wanted=wanted),)) if key == ML_UPGRADE_MODE:
            return _change("POST", "/_ml/set_upgrade_mode", {"enabled": str(wanted)} | allowed)
        case WriteSettings(changes=changes):
            return _change("PUT", "/_cluster/settings", waits, settings_body(changes))
        case Flush():
            return _FLUSH
        case RetryFailed():
            return _change("POST", "/_cluster/reroute", {"retry_failed": "true", "metric": "none"} | waits)
        case SetReplicas(index=index, wanted=wanted):
            body = {"index": {"number_of_replicas": wanted}}
            return _change("PUT", f"/{quoted(index)}/_settings", ONLY_NAMED | waits, body)
        case ForceMerge():
            return merge_request(action)
        case RefreshIndex(index=index):
            path = f"/{quoted(index)}/_refresh"
            return HttpRequest(method="POST", path=path, params=ONLY_NAMED, silence=FLUSH_SECONDS)
        case SetIndexSettings(index=index, wanted=settings):
            return _change("PUT", f"/{quoted(index)}/_settings", ONLY_NAMED | waits, dict(settings))
        case ExcludeFromVoting(node=node):
            return _change("POST", _EXCLUSIONS, {"node_names": str(node)} | allowed)
        case ClearVotingExclusions():
            return _change("DELETE", _EXCLUSIONS, {"wait_for_removal": "false"})
        case _:
            assert_never(action)


_EXCLUSIONS: Final = "/_cluster/voting_config_exclusions"


def _change(method: str, path: str, params: dict[str, str], body: Any = None) -> HttpRequest:
    """A change of the cluster state: in the master's queue, and then on the nodes."""
    silence = 2 * UPDATE_SECONDS + calls.ANSWER_MARGIN_SECONDS
    return HttpRequest(method=method, path=path, params=params, body=body, silence=silence)


_FLUSH: Final = HttpRequest(
    method="POST",
    path="/_flush",
    params={"wait_if_ongoing": "true", "ignore_unavailable": "true", "expand_wildcards": "open,hidden"},
    silence=FLUSH_SECONDS,
    answer_bytes=AnswerBytes.BY_COPY,
)
"""A flush of every index."""


def settings_body(changes: Sequence[SettingChange]) -> dict[str, dict[str, Any]]:
    """One update of both levels. JSON null removes a setting."""
    body: dict[str, dict[str, Any]] = {}
    for level in (Level.PERSISTENT, Level.TRANSIENT):
        values = {
            change.key: list(change.wanted) if isinstance(change.wanted, tuple) else change.wanted
            for change in changes
            if change.level is level
        }
        if values:
            body[level.value] = values
    return body


def perform(client: ElasticsearchClient, action: IndexAction) -> ActionResult:
    """Do it, once."""
    dialect = client.dialect_to_write()
    if isinstance(dialect, Fault):
        return dialect.refused()
    if isinstance(action, WriteSettings):
        return _write(client, action)
    if isinstance(action, ProbeSettings):
        blocked = _archived(client)
        if blocked is not None:
            return blocked
    if isinstance(action, OfIndex):
        settled = _index_gone(client, action)
        if settled is not None:
            return settled
    if isinstance(action, ForceMerge):
        return force_merge(client, dialect, action)
    if isinstance(action, SetIndexSettings) and not action.wanted:
        return Done()  # as above
    request = request_for(action)
    if (instead := dialect.spelled(request).instead) is not None:
        return Done(output=instead.why)
    return outcome_of(action, client.write(request))


def requests_for(action: IndexAction, dialect: Dialect) -> tuple[HttpRequest, ...]:
    """All requests for this action, in order: a mode that is no setting has a request of its own."""
    return tuple(dialect.spelled(request_for(part)) for part in _parts(action))


def _parts(action: IndexAction) -> tuple[IndexAction, ...]:
    if not isinstance(action, WriteSettings):
        return (action,)
    modes = tuple(change for change in action.changes if change.key == ML_UPGRADE_MODE)
    others = tuple(change for change in action.changes if change not in modes)
    alone = (replace(action, changes=(mode,)) for mode in modes)
    return (*alone, *((replace(action, changes=others),) if others else ()))


def _write(client: ElasticsearchClient, action: WriteSettings) -> ActionResult:
    """Write the mode first. If one is written and the next refused, only a reading shows which."""
    for written, part in enumerate(_parts(action)):
        result = outcome_of(part, client.write(request_for(part)))
        if not isinstance(result, Done):
            return InDoubt(reason=result.reason) if written else result
    return Done()  # also of an empty update, which the server would refuse


def _archived(client: ElasticsearchClient) -> Refused | None:
    """Refused if there are archived settings: they fail every update that changes a setting at their level.

    An update that changes nothing still succeeds (seen on 8.19), so they are read first. Issues:
    elastic/elasticsearch#61175, opensearch-project/OpenSearch#8714 and #18515.
    """
    try:
        names = parse_archived(client.body(calls.levels(client.limits)))
    except ReadFailed as error:
        return Refused(reason=str(error))
    return Refused(reason=what_to_do(names)) if names else None


def _index_gone(client: ElasticsearchClient, action: OfIndex) -> ActionResult | None:
    """Done if the index is gone; None if it is still there and may be changed.

    An index of the same name with another uuid is another index. It may still be replaced between this
    reading and the write: the server accepts only names, so the gap can only be kept short.
    """
    read = client.read(calls.index_uuids(client.limits, [action.index]))
    if isinstance(read, Fault):
        return Refused(
            reason=f"whether index {action.index} is still the same could not be read: {read.reason}",
            passes=read.passes or not read.nothing_done,
        )
    try:
        found = parse_index_uuids(read.body).get(action.index)
    except ReadFailed as error:
        return Refused(reason=str(error))
    if found == action.index_uuid:
        return None
    why = "is gone" if found is None else f"is another one (now {found} instead of {action.index_uuid})"
    return Done(output=f"index {action.index} {why}: left alone")


def outcome_of(action: IndexAction, outcome: Answer | Fault) -> ActionResult:
    """The result of an action from the server's answer."""
    if isinstance(outcome, Fault):
        if isinstance(action, OfIndex) and outcome.error_type == "index_not_found_exception":
            return Done(output=f"index {action.index} is gone")
        if not outcome.nothing_done:
            return InDoubt(reason=outcome.reason)
        return outcome.refused()
    body = outcome.body
    match action:
        case ProbeSettings() | WriteSettings() | RetryFailed() | SetReplicas() | SetIndexSettings():
            return _acknowledged(body)
        case Flush():
            return _copies(body, "flushed")
        case RefreshIndex():
            return _copies(body, "refreshed")
        case ForceMerge():
            return merge_asked(body)
        case ExcludeFromVoting() | ClearVotingExclusions():
            return Done()  # an empty answer, sent when it is done
        case _:
            assert_never(action)


def _acknowledged(body: Any) -> ActionResult:
    if isinstance(body, dict) and body.get("acknowledged") is True:
        return Done()
    if isinstance(body, dict) and body.get("acknowledged") is False:
        return InDoubt(reason="the change was accepted, but not every node has confirmed it in time")
    return InDoubt(reason=f"the answer does not say whether it was done: {str(body)[:200]}")


def _copies(body: Any, done: str) -> ActionResult:
    """A flush that missed shards counts as done: recovery replays these operations and only takes longer.

    So does a refresh: the searched segments of every copy are read afterwards.
    """
    match body:
        case {"_shards": {"total": int(total), "successful": int(successful), "failed": int(failed)}}:
            missed = f", {failed} failed" if failed else ""
            return Done(output=f"{successful} of {total} copies {done}{missed}")
        case _:
            return InDoubt(reason=f"the answer does not say what was {done}: {str(body)[:200]}")


_MARGIN_SECONDS: Final = 2.0
"""Extra time for the answer, so that the server's own time-out arrives as an answer."""


def watch_request(watch: ClusterWatch, timeout: Seconds) -> HttpRequest:
    """The long-poll request. Health waits on the master; a node without a master waits as long for one."""
    match watch:
        case NodesJoined(count=count):
            # `>=` is written as `ge(…)` too; this form needs no quoting.
            wanted = {"wait_for_nodes": f"ge({count})"}
        case CopiesActive(count=count):
            wanted = {"wait_for_active_shards": str(count)}
        case MasterElected():
            wanted = {}
        case _:
            assert_never(watch)
    allowed = calls.seconds(timeout)
    return get(
        "/_cluster/health",
        params=wanted | {"wait_for_events": "languid", "timeout": allowed, "master_timeout": allowed},
        accept=frozenset({408}),
        silence=timeout + _MARGIN_SECONDS,
    )


def watch_for(client: ElasticsearchClient, watch: ClusterWatch, timeout: Seconds) -> bool:
    """Wait: True once the condition seems to hold, False after a time-out or a lost connection."""
    if isinstance(client.dialect(), Fault):
        return False
    outcome = client.once(watch_request(watch, timeout))
    if isinstance(outcome, Fault) or not isinstance(outcome.body, dict):
        return False
    return outcome.body.get("timed_out") is False
