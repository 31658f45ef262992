"""`/stats`: the recorded object with the fields changed that a restart changes."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from .report import View

PLACES = (
    Path(__file__).parent / "stats.json",
    Path(__file__).parents[2] / "data" / "riak" / "riak-3.2.1-stats.json",
)
"""Where the recorded object lies: beside the code in a container, with the recordings in the repository."""


@lru_cache
def recorded() -> dict[str, Any]:
    """The recorded object, which is everybody's: copy it before you change it.

    Raises:
        FileNotFoundError: the double was installed without it.
    """
    for place in PLACES:
        if place.exists():
            found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
            return found
    raise FileNotFoundError(f"none of {', '.join(str(place) for place in PLACES)} is there")


def stats(view: View) -> dict[str, Any]:
    """What `/stats` gives, in the recorded order of its fields."""
    found = dict(recorded())
    ring, me = view.ring, view.me
    smp = f"[smp:{view.schedulers}:{view.schedulers_online}]"
    dirty = f"[ds:{view.schedulers}:{view.schedulers_online}:10]"
    system = re.sub(r"\[smp:\d+:\d+\]", smp, found["sys_system_version"])
    owned = ",".join(f"{{'{name}',{len(ring.owned(name))}}}" for name in sorted(ring.members, reverse=True))
    found.update(
        connected_nodes=sorted(view.others),
        nodename=me.name,
        riak_kv_vnodes_running=len(me.vnodes),
        riak_pipe_vnodes_running=len(me.vnodes),
        ring_creation_size=ring.size,
        ring_members=sorted(ring.members),
        ring_num_partitions=ring.size,
        ring_ownership=f"[{owned}]",
        sys_logical_processors=view.processors,
        sys_system_version=re.sub(r"\[ds:\d+:\d+:\d+\]", dirty, system),
    )
    return found
