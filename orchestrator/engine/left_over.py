"""What a run that ends has not restored, in words that a person can act on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.engine.predicates import by_same_reason
from orchestrator.engine.progress import GOING_UP_OR_DOWN
from orchestrator.engine.state import RunState
from orchestrator.formats import counted, setting
from orchestrator.model.cluster import NodeName
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
    return (*changes_left(state), *nodes, *_unserved(state))


def changes_left(state: RunState) -> tuple[LeftOver, ...]:
    """The changes of settings, replicas and voters that the run has not restored yet."""
    left = [
        LeftOver(
            name=change.key,
            one=f"setting {{}} ({level.value}): set to {setting(change.wanted)} by the run; "
            f"was {setting(change.found)} before",
        )
        for (level, _), change in state.unrestored.in_order
    ]
    left += [
        LeftOver(
            name=one.index,
            one=f"index {{}}: set to {counted(one.wanted, 'replica')} by the run; had {one.found} before",
        )
        for one in state.unrestored.replicas.values()
    ]
    if state.unrestored.excluded:
        left.append(
            LeftOver(name=", ".join(sorted(state.unrestored.excluded)), one="excluded from voting: {}")
        )
    return tuple(left)


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
