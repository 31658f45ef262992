"""Brings the double into the state of a recording: ring, who is up, how much waits, what is under way.

Names, counts and moments are taken from the recording, since they say which state it was; every other byte
is the double's own.
"""

from __future__ import annotations

import re
from calendar import timegm
from dataclasses import replace
from time import strptime

from tests.doubles.riak_double.report import Report, Transfer, View
from tests.doubles.riak_double.ring import Change, Ring, alone, claim, formed
from tests.riak_transcripts import Recording

SIZE = 16
DEV1, DEV2, DEV3 = NAMES = tuple(f"dev{number}@127.0.0.1" for number in (1, 2, 3))
TO_BE = claim(NAMES, SIZE)
SERVICES = ("riak_kv", "riak_pipe", "riak_repl")
GONE = {
    "dev2down": DEV2,
    "dev2down+writes": DEV2,
    "claimantdown": DEV1,
    "dev3killed": DEV3,
    "misc": DEV3,
}
"""Who was down in which of the recorder's states."""


def staged(recording: Recording) -> View:
    """What the asked node knew."""
    ring = _ring(recording)
    names = tuple(ring.members)
    gone = GONE.get(recording.state)
    me = f"{recording.node}@127.0.0.1"
    reports = {name: _report(recording, ring, name) for name in names if name != gone}
    mine = replace(reports[me], settled=_settled(recording))
    others = {name: report for name, report in reports.items() if name != me}
    return View(me=mine, others=others, **_numbers(recording))


def _ring(recording: Recording) -> Ring:
    if recording.state in {"single", "start", "already", "badnode", "cfg"}:
        return alone(DEV1, SIZE)
    if "cluster join" in recording.command:
        return alone(f"{recording.node}@127.0.0.1", SIZE)
    if recording.state in {"join", "commit"}:
        return replace(alone(DEV1, SIZE), staged=(DEV2, DEV3))
    ring = formed(NAMES, SIZE)
    if recording.state.startswith("joining") and "transfers" in recording.command:
        given_away = (DEV2,) * 2 if f"'{DEV1}'" in recording.output else ()
        return replace(ring, owners=given_away + (DEV1,) * (SIZE - len(given_away)))
    if recording.state.startswith("joining"):
        return _joining(ring, recording)
    after_down = recording.line > 4360 and recording.state == "misc"
    return ring.marked(DEV3, "down") if after_down else ring


def _joining(ring: Ring, recording: Recording) -> Ring:
    """As far as it had come, in the order of the partitions: only shares are printed of what is done."""
    text = recording.output
    changes = tuple(Change(partition=number, owner=owner) for number, owner in _others())
    if "Ownership Handoff" in text:
        changes = tuple(_listed(text))
        waiting = {change.partition for change in changes}
        owners = tuple(DEV1 if number in waiting else TO_BE[number] for number in range(SIZE))
        return replace(ring, owners=owners, changes=changes)
    shares = {name: share for share, name in re.findall(r"valid +([\d.]+)%.*?(dev\d@\S+)", text)}
    shares |= dict(re.findall(r"(dev\d@\S+) \|valid \|  up   \| *([\d.]+)", text))
    owners = list((DEV1,) * SIZE)
    for name in (DEV2, DEV3):
        for number in _of(name)[: round(float(shares.get(name, 0)) * SIZE / 100)]:
            owners[number] = name
    return replace(ring, owners=tuple(owners), changes=changes)


def _others() -> list[tuple[int, str]]:
    return [(number, owner) for number, owner in enumerate(TO_BE) if owner != DEV1]


def _of(name: str) -> list[int]:
    return [number for number, owner in _others() if owner == name]


def _listed(text: str) -> list[Change]:
    found, owner = [], ""
    for line in text.splitlines():
        if line.startswith("Next Owner: "):
            owner = line.removeprefix("Next Owner: ")
        elif line.startswith("Index: "):
            partition = int(line.removeprefix("Index: ")) * SIZE // 2**160
            found.append(Change(partition=partition, owner=owner))
        elif line.startswith("  Complete: "):
            found[-1] = replace(found[-1], complete=("riak_pipe_vnode",))
        elif line.startswith("  All transfers complete"):
            found[-1] = replace(found[-1], complete=("riak_kv_vnode", "riak_pipe_vnode"))
    return found


def _settled(recording: Recording) -> bool:
    return not re.search(r"Ring [Rr]eady: false", recording.output)


def _report(recording: Recording, ring: Ring, name: str) -> Report:
    text = recording.output
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
    return {"pid": int(recording.output)} if recording.command == "riak pid" else {}
