"""What a simulated run left behind: settings that were not restored, nodes that are down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.formats import setting
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level, ServiceState, SettingValue
from orchestrator.model.riak import holder
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.world import World

Settings = Mapping[tuple[Level, str], SettingValue]
"""Every setting that has a value, by level and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """The cluster after the run, by its ground truth."""

    # settings that the run did not restore, each with its original and its current value
    not_as_found: tuple[str, ...]
    # settings that somebody else has changed since the run began, in the same form
    by_others: tuple[str, ...]
    down: tuple[NodeName, ...]  # nodes that do not run
    apart: tuple[NodeName, ...]  # nodes that run, and that are not in the cluster
    stopping: tuple[NodeName, ...]  # nodes whose stop has not ended


def settings(world: World) -> Settings:
    """The current settings."""
    persistent, transient = world.settings()
    levels = ((Level.PERSISTENT, persistent), (Level.TRANSIENT, transient))
    return {(level, key): value for level, layer in levels for key, value in layer.items()}


def aftermath(world: World, before: Settings) -> Aftermath:
    """Compare the cluster with its settings before the run; changes by others are listed apart."""
    after = settings(world)
    changed = {
        (level, key): f"{key}: was {setting(before.get((level, key)))}, is {setting(after.get((level, key)))}"
        for level, key in sorted({*before, *after}, key=lambda each: (each[1], each[0].value))
        if after.get((level, key)) not in (before.get((level, key)), _in_its_place(world, key, before, level))
    }
    allowed = {at for at in changed if _may_be(world, *at, before.get(at), after.get(at))}
    # The limits of a Riak node that was restarted are those of its files: nobody else has set them.
    others = set[tuple[Level, str]]() if isinstance(world, RiakWorld) else allowed
    return Aftermath(
        not_as_found=tuple(words for at, words in changed.items() if at not in allowed),
        by_others=tuple(words for at, words in changed.items() if at in others),
        down=tuple(name for name, node in world.nodes.items() if not node.process),
        apart=tuple(n for n, node in world.nodes.items() if node.process and node.member_life is None),
        stopping=tuple(n for n, node in world.nodes.items() if node.service is ServiceState.STOPPING),
    )


def _in_its_place(world: World, key: str, before: Settings, level: Level) -> SettingValue | None:
    """What a setting that was absent is restored to, where none can become absent again."""
    found = before.get((level, key))
    return found if found is not None or world.ways.resets else world.files.get(key)


def _may_be(
    world: World, level: Level, key: str, found: SettingValue | None, now: SettingValue | None
) -> bool:
    if found == now:
        return True
    if isinstance(world, RiakWorld):
        name = holder(key)
        if now is None or name is None or not isinstance(found, str):
            return True  # the node is down, or restarted since: no limit in memory, or that of its files
        return isinstance(now, str) and int(now) in world.may_be(name, int(found))
    return now in world.may_stand(level, key, found)
