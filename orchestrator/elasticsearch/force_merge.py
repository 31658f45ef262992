"""Request a force-merge: once, and never while another one runs.

A merge continues when its client is killed or disconnects (seen on Elasticsearch 8.19 and 9.1 and on
OpenSearch 2.19). A second merge queues behind it on every node. So the task list is read first, and a missing
answer is not treated as a refusal.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.bulk import merges_of
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import Dialect
from orchestrator.elasticsearch.faults import Fault
from orchestrator.elasticsearch.fields import ReadFailed
from orchestrator.elasticsearch.request import HttpRequest, quoted
from orchestrator.model.action import ActionResult, Done, ForceMerge, InDoubt, Refused
from orchestrator.model.reading import Seconds

PATIENCE: Final[Seconds] = 5.0
"""How long to wait for a call that returns when the merge has ended: long enough for a refusal, which comes
at once, and for a very small merge."""
RESULT_PATIENCE: Final[Seconds] = 3.0
"""How long to wait for the result of a new task, which may be a refusal."""
_REFUSALS: Final = frozenset({"security_exception", "index_closed_exception", "cluster_block_exception"})
"""Errors of a task from before any merge."""


def merge_request(action: ForceMerge, dialect: Dialect) -> HttpRequest:
    """The call. By default it flushes afterwards, so that the merged segments survive a restart."""
    params = {"max_num_segments": str(action.max_segments)} | calls.only_named(dialect)
    path = f"/{quoted(action.index)}/{dialect.merge_call}"
    if dialect.merge_task:
        return HttpRequest(method="POST", path=path, params=params | {"wait_for_completion": "false"})
    return HttpRequest(method="POST", path=path, params=params, silence=PATIENCE)


def force_merge(client: ElasticsearchClient, dialect: Dialect, action: ForceMerge) -> ActionResult:
    """Request a merge of this index, unless a merge that includes it already runs, from any client.

    Another client may request one between the reading and the call. Each node then runs both merges in turn,
    and the second has little to do.
    """
    try:
        running = _running(client, dialect, action)
    except ReadFailed as error:
        return Refused(
            reason=f"whether a force-merge of {action.index} runs already could not be read: {error}"
        )
    if running is not None:
        return replace(running, output=f"runs already: {running.output}")
    outcome = client.write(merge_request(action, dialect))
    if not isinstance(outcome, Fault):
        return _begun(client, action, outcome.body)
    if outcome.error_type == "index_not_found_exception":
        return Done(output=f"index {action.index} is gone")
    if outcome.nothing_done:
        return Refused(reason=outcome.reason)
    with suppress(ReadFailed):
        if (begun := _running(client, dialect, action)) is not None:
            return begun
    return InDoubt(reason=outcome.reason)


def _begun(client: ElasticsearchClient, action: ForceMerge, body: Any) -> ActionResult:
    """The result of an answered call.

    The server returns a task before any check. A missing right or a closed index appears only in the task's
    result (seen on 9.1), at once, so we wait briefly for it. A merge that still runs then is no fault.
    """
    asked = merge_asked(body)
    if not isinstance(body, dict) or not isinstance(body.get("task"), str) or not isinstance(asked, Done):
        return asked
    outcome = client.once(calls.task(body["task"], patience=RESULT_PATIENCE))
    if isinstance(outcome, Fault):
        return asked  # it still runs, or its result is not written yet
    match outcome.body:
        case {"completed": True, "error": {"type": str(kind), "reason": reason}}:
            why = f"the force-merge of {action.index} came to nothing ({asked.output}): {reason}"
            if kind == "index_not_found_exception":
                return Done(output=f"index {action.index} is gone")
            return Refused(reason=why) if kind in _REFUSALS else InDoubt(reason=why)
        case {"completed": True, "response": response}:
            ended = merge_asked(response)
            return Done(output=f"{asked.output}: {ended.output}") if isinstance(ended, Done) else ended
        case _:
            return asked


def _running(client: ElasticsearchClient, dialect: Dialect, action: ForceMerge) -> Done | None:
    """Done with the task's id if a merge of the index runs; None if none does or there is no task list."""
    if not dialect.task_list:
        return None
    running = merges_of(client, dialect, {action.index_uuid: action.index})
    tasks = [merge.task for merge in running[action.index_uuid]]
    return Done(output=", ".join(f"task {task}" for task in tasks)) if tasks else None


def merge_asked(body: Any) -> ActionResult:
    """The result of a call that started a task or that has finished the merge."""
    match body:
        case {"task": str(task)} if task:
            return Done(output=f"task {task}")
        case {"_shards": {"total": int(total), "successful": int(successful), "failed": int(failed)}}:
            missed = f", {failed} failed" if failed else ""
            return Done(output=f"{successful} of {total} copies merged{missed}")
        case _:
            return InDoubt(reason=f"the answer does not say whether a merge was begun: {str(body)[:200]}")
