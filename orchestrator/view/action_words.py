"""Each action as one plain line for people, in the imperative. The exact call is in the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, assert_never

from orchestrator.model.action import (
    Action,
    ClearVotingExclusions,
    ExcludeFromVoting,
    Flush,
    ForceHandoff,
    ForceMerge,
    ProbeSettings,
    RebootHost,
    RefreshIndex,
    RetryFailed,
    RunHook,
    RunInstall,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
    StartNode,
    StopNode,
    TuneHost,
    WriteSettings,
)
from orchestrator.untrusted import one_line
from orchestrator.view.text import counted, listed, setting
from orchestrator.view.upgrade_words import install_sentence

_NAMED_CHANGES = 2

_PLAIN_VERBS: dict[type[Action], str] = {
    ProbeSettings: "check that settings can be written",
    Flush: "flush all indices",
    RetryFailed: "retry copies whose allocation failed",
    ForceHandoff: "force handoff on every node",
    ClearVotingExclusions: "clear voting exclusions",
}
"""Verbs on the cluster without further details."""


def action_sentence(action: Action) -> str:
    """A verb on its target, in the imperative; the exact call is the plan's business."""
    match action:
        case ProbeSettings() | Flush() | RetryFailed() | ForceHandoff() | ClearVotingExclusions():
            return f"cluster: {_PLAIN_VERBS[type(action)]}"
        case WriteSettings(changes=changes):
            if len(changes) > _NAMED_CHANGES:
                return f"cluster: write {len(changes)} settings in one update"  # each has had its own line
            return "cluster: " + ("; ".join(_change(change) for change in changes) or "write no setting")
        case SetReplicas(index=index, found=found, wanted=wanted):
            return f"index {index}: set {counted(wanted, 'replica')} (found {found})"
        case ForceMerge() | RefreshIndex() | SetIndexSettings():
            return merge_action(action)
        case ExcludeFromVoting(node=node):
            return f"{node}: exclude from voting"
        case StopNode(node=node):
            return f"{node}: stop the service"
        case StartNode(node=node):
            return f"{node}: start the service"
        case RebootHost(node=node, also=also):
            return f"{node}: reboot the host" + (f", which {listed(also)} shares" if also else "")
        case RunHook(node=node, moment=moment, number=number, hook=hook):
            where = "here" if hook.local else "on its host"
            command = one_line(hook.run.replace("{node}", node), 120)
            return f"{node}: run hook {moment.value} {number} {where}: {command}"
        case RunInstall():
            return install_sentence(action)
        case TuneHost():
            return f"{action.node}: set {tuned_words(action.tunable, action.found, action.wanted)}"
        case _:
            assert_never(action)


def tuned_words(tunable: str, found: str, wanted: str) -> str:
    """A tunable with its former value, if there is one, and its new one."""
    former = f"{one_line(found)} -> " if found else ""
    return f"{tunable}: {former}{one_line(wanted)}"


def _change(change: SettingChange) -> str:
    if change.wanted is None:
        return f"unset {change.key} ({change.level.value}; it was {setting(change.found)})"
    return (
        f"set {change.key} to {setting(change.wanted)} ({change.level.value}; it was {setting(change.found)})"
    )


MergeAction: TypeAlias = ForceMerge | RefreshIndex | SetIndexSettings


def merge_action(action: MergeAction) -> str:
    """A verb on an index, in the imperative."""
    match action:
        case ForceMerge(index=index, max_segments=most):
            return f"index {index}: merge every copy to at most {counted(most, 'segment')}"
        case RefreshIndex(index=index):
            return f"index {index}: refresh"
        case SetIndexSettings(index=index, found=found, wanted=wanted):
            return f"index {index}: set {_settings(found, wanted)}"
        case _:
            assert_never(action)


def _settings(found: Mapping[str, str | None], wanted: Mapping[str, str | None]) -> str:
    return listed(
        [
            f"{key.removeprefix('index.')} to {_value(value)} (found {_value(found.get(key))})"
            for key, value in wanted.items()
        ]
    )


def _value(value: str | None) -> str:
    return "the default" if value is None else value
