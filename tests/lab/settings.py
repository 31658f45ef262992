"""A snapshot of a cluster's settings, to show that a run restored all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.lab.client import LabClient

LEVELS = ("persistent", "transient")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPicture:
    """All cluster settings at one moment, by `level` and dotted name, without the defaults."""

    persistent: Mapping[str, Any]
    transient: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One setting that changed; None = absent."""

    level: str
    name: str
    before: Any
    after: Any


def read_settings(client: LabClient) -> SettingsPicture:
    """Read all cluster settings.

    Raises:
        LabError: the cluster did not answer.
    """
    read = client.ask("GET", "/_cluster/settings?flat_settings=true")
    return SettingsPicture(persistent=read["persistent"], transient=read["transient"])


def changes(before: SettingsPicture, after: SettingsPicture) -> tuple[SettingChange, ...]:
    """The differences between two snapshots, level by level; empty if a run restored every setting."""
    found = []
    for level in LEVELS:
        old: Mapping[str, Any] = getattr(before, level)
        new: Mapping[str, Any] = getattr(after, level)
        found += [
            SettingChange(level=level, name=name, before=old.get(name), after=new.get(name))
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        ]
    return tuple(found)
