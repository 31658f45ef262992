"""What a simulated run left behind: settings that were not restored, nodes that are down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.engine.kinds.riak.settings import holder
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level, SettingValue
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.world import World

Settings = Mapping[tuple[Level, str], SettingValue]
"""Every setting that has a value, by level and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """The cluster after the run, by its ground truth.

    Attributes:
        not_as_found: settings that the run did not restore, each with its original and its current value.
        down: nodes that do not run.
    """

    not_as_found: tuple[str, ...]
    down: tuple[NodeName, ...]


def settings(world: World) -> Settings:
    """The current settings."""
    persistent, transient = world.settings()
    levels = ((Level.PERSISTENT, persistent), (Level.TRANSIENT, transient))
    return {(level, key): value for level, layer in levels for key, value in layer.items()}


def aftermath(world: World, before: Settings) -> Aftermath:
    """Compare the cluster with its settings before the run; changes by others do not count."""
    after = settings(world)
    left = [
        f"{key}: was {_said(before.get((level, key)))}, is {_said(after.get((level, key)))}"
        for level, key in sorted({*before, *after}, key=lambda each: (each[1], each[0].value))
        if not _may_be(world, level, key, before.get((level, key)), after.get((level, key)))
    ]
    return Aftermath(
        not_as_found=tuple(left),
        down=tuple(name for name, node in world.nodes.items() if not node.process),
    )


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


def _said(value: SettingValue | None) -> str:
    return "absent" if value is None else value if isinstance(value, str) else ", ".join(value)
