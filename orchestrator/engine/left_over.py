"""What a run that ends has not restored, in words that a person can act on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.engine import changes
from orchestrator.engine.predicates import by_same_reason
from orchestrator.engine.progress import GOING_UP_OR_DOWN
from orchestrator.engine.state import RunState
from orchestrator.model.action import Purpose
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import SettingValue
from orchestrator.next_command import next_command


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOver:
    """One setting, index or node that is not restored."""

    name: str  # of it
    one: str  # the sentence, with `{}` for its name
    many: str = ""  # the same for several names; empty if it is the same


def texts(left: Iterable[LeftOver]) -> tuple[str, ...]:
    """A text for each of them."""
    return tuple(item.one.replace("{}", item.name, 1) for item in left)


def grouped(left: Sequence[LeftOver]) -> tuple[str, ...]:
    """The same texts; those that differ only in the name are one, with all names."""
    several = {item.one: item.many or item.one for item in left}
    found = by_same_reason((item.name, item.one) for item in left).items()
    return tuple(
        (several[one] if len(names) > 1 else one).replace("{}", ", ".join(names), 1) for one, names in found
    )


def left_over(state: RunState, *, running: Collection[NodeName] = ()) -> tuple[LeftOver, ...]:
    """What is not restored at the end of a run; nothing if another run has taken over.

    Args:
        state: of the run.
        running: nodes whose services run, as their hosts show; the cluster may not have shown them.
    """
    if state.process.deposed is not None:
        return ()
    debts = [*changes.unrestored(state, Purpose.REASSIGN), *changes.unrestored(state, Purpose.RESTORE)]
    settings = [
        LeftOver(name=d.key, one=f"{{}} ({d.level.value}) = {_value(d.wanted)}, found {_value(d.found)}")
        for d in debts
    ]
    exclusions = [
        LeftOver(name=name, one="voting exclusion of {}") for name in sorted(state.unrestored.excluded)
    ]
    added = state.unrestored.replicas.values()
    replicas = [LeftOver(name=r.index, one=f"replicas of {{}} = {r.wanted}, found {r.found}") for r in added]
    nodes = [
        _started(node.name)
        if node.name in running
        else LeftOver(
            name=node.name,
            one=f"node {{}} is {node.phase.value}",
            many=f"nodes {{}} are {node.phase.value}",
        )
        for node in state.nodes_in(*GOING_UP_OR_DOWN)
    ]
    return (*settings, *exclusions, *replicas, *nodes, *_unserved(state))


def recorded(state: RunState, left: Iterable[str]) -> tuple[LeftOver, ...]:
    """The items whose texts the journal has at the end of a run; another version may have had other words."""
    going = [node.name for node in state.nodes_in(*GOING_UP_OR_DOWN)]
    items = (*left_over(state), *left_over(state, running=going))
    known = {text: item for item in items for text in texts([item])}
    return tuple(known.get(text, LeftOver(name="", one=text)) for text in left)


def _started(name: NodeName) -> LeftOver:
    seen = "started, and not seen in the cluster"
    return LeftOver(name=name, one=f"node {{}} was {seen}", many=f"nodes {{}} were {seen}")


def _unserved(state: RunState) -> tuple[LeftOver, ...]:
    """Nodes out of service for which this run has no hooks: the earlier run had another playbook."""
    if not state.unserved:
        return ()
    names, whose = ", ".join(state.unserved), state.begun.hooks_of or f"run {state.begun.repairs}"
    hooks = _of_cluster(state, "--playbook", "FILE")
    text = (
        f"{{}} out of service: the after_recovery hooks of {whose} did not run; "
        f"`{hooks}` with the playbook of that run, or run them by hand and then `{by_hand(state)}`"
    )
    return (LeftOver(name=names, one=text),)


def by_hand(state: RunState) -> str:
    """The command that restores the rest once people have put the nodes into service."""
    return _of_cluster(state, *(word for name in state.unserved for word in ("--in-service", name)))


def _of_cluster(state: RunState, *more: str) -> str:
    cluster = state.begun.cluster_file or "NAME"
    return next_command("restore", "--cluster", cluster, *more, state=state.process.state)


def _value(value: SettingValue | None) -> str:
    return "not set" if value is None else str(value)
