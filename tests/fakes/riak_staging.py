"""Brings the double into the state of a recording: who is up, how much waits, what is under way.

Names, counts and moments are taken from the recording, since they say which state it was; every other byte
is the double's own.
"""

from __future__ import annotations

import re
from calendar import timegm
from time import strptime

from tests.doubles.riak_double.report import Report, Transfer, View
from tests.doubles.riak_double.ring import Ring, formed
from tests.riak_transcripts import Recording

SIZE = 16
DEV1, DEV2, DEV3 = NAMES = tuple(f"dev{number}@127.0.0.1" for number in (1, 2, 3))
SERVICES = ("riak_kv", "riak_pipe", "riak_repl")
GONE = {
    "dev2down": DEV2,
    "dev2down+writes": DEV2,
    "claimantdown": DEV1,
    "dev3killed": DEV3,
    "misc": DEV3,
}
"""Who was down in which of the recorder's states."""
ALONE = ("single", "start")
"""The states of one node that has joined no other."""


def staged(recording: Recording) -> View:
    """What the asked node knew."""
    ring = formed((DEV1,) if recording.state in ALONE else NAMES, SIZE)
    gone = GONE.get(recording.state)
    me = f"{recording.node}@127.0.0.1"
    reports = {name: _report(recording, ring, name) for name in ring.members if name != gone}
    others = {name: report for name, report in reports.items() if name != me}
    return View(me=reports[me], others=others, **_numbers(recording))


def _report(recording: Recording, ring: Ring, name: str) -> Report:
    text = recording.text
    own = ring.owned(name)
    missing = re.search(rf"'{name}' does not have (\d+) primary", text)
    waiting = re.search(rf"'{name}' waiting to handoff (\d+) partitions", text)
    others = [number for number in range(SIZE) if number not in own]
    vnodes = own - set(sorted(own)[: int(missing[1])]) if missing else own
    vnodes |= set(others[: int(waiting[1])]) if waiting else set()
    limit = re.search(rf"^\|? *{name}\| +(\d+) ", text, re.MULTILINE) or re.search(
        rf"  (\d+)  +'{name}'", text
    )
    return Report(
        name=name,
        ring=ring,
        vnodes=frozenset(vnodes),
        services=SERVICES,
        transfer_limit=int(limit[1]) if limit else 2,
        transfers=tuple(each for each in _transfers(text) if each.source == name),
    )


def _transfers(text: str) -> list[Transfer]:
    """The one that `transfers` tells of."""
    pattern = r"partition: (\d+)\nstarted: (\S+ \S+) \[([\d.]+) (m?s) ago\]\nlast update: (.*)\n"
    if found := re.search(pattern, text):
        source, target = re.findall(r"^ +(\S+) +=======> +(\S+)", text, re.MULTILINE)[0]
        update = re.search(r"\[([\d.]+) (m?s) ago\]", found[5])
        counts = re.search(r"total size: (\d+) objects\nobjects transferred: (\d+)", text)
        started = float(timegm(strptime(found[2], "%Y-%m-%d %H:%M:%S")))
        rate = re.search(r"(\d+) Objs/s", text)
        return [
            Transfer(
                partition=int(found[1]) * SIZE // 2**160,
                source=source,
                target=target,
                # The recorder's clock had fractions of a second that the text does not show.
                started=started + (0.9 if update else 0.0),
                age=_seconds(found[3], found[4]),
                update_age=_seconds(update[1], update[2]) if update else None,
                total=int(counts[1]) if counts else 0,
                sent=int(counts[2]) if counts else 0,
                rate=int(rate[1]) if rate else 0,
            )
        ]
    return []


def _seconds(number: str, unit: str) -> float:
    return float(number) / (1000 if unit == "ms" else 1)


def _numbers(recording: Recording) -> dict[str, int | float]:
    """The process's own number."""
    return {"pid": int(recording.text)} if recording.command == "riak pid" else {}
