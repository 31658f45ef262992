"""Real processes, killed with SIGKILL while they write, and racing for one lease."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.model.event import GoodReading, LeaseTaken
from orchestrator.model.lease import LeaseRecord
from orchestrator.runtime.store import RunEntry, StateStore

RUN = "20261121-0413-x7k2"
Start = Callable[..., Any]
Entry = Callable[..., RunEntry]


def steps_of(store: StateStore) -> list[int]:
    """The steps that stand in the journal; each must be whole."""
    records = store.replay(RUN)
    assert len(records) % 3 == 0, "half a step stands there"
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))
    counts = [record.event.count for record in records if isinstance(record.event, GoodReading)]
    assert counts[0::2] == counts[1::2]
    return counts[0::2]


@pytest.mark.parametrize("size", [10, 6_000_000], ids=["in memory", "spilt to the file"])
@pytest.mark.parametrize(("moment", "standing"), [("before", 2), ("after", 3)])
@pytest.mark.proves("commit")
def test_a_kill_at_the_commit_leaves_all_of_the_step_or_nothing(  # noqa: PLR0917  (fixtures and cases)
    store: StateStore, url: str, entry: Entry, start: Start, moment: str, standing: int, size: int
) -> None:
    """A step larger than SQLite's cache is in the file before its commit: it has to be rolled back."""
    store.create_run(entry())
    child = start("append", url, RUN, "3", moment, str(size))
    output, errors = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, errors
    assert output.split() == ["1", "2"]
    assert steps_of(store) == list(range(1, standing + 1))
    following = store.journal(RUN).append((LeaseTaken(epoch=1, holder="next"),), 9.0)
    assert following[0].sequence == standing * 3 + 1


@pytest.mark.parametrize("seed", range(5))
def test_a_kill_at_any_moment_loses_nothing_acknowledged(
    store: StateStore, url: str, entry: Entry, start: Start, seed: int
) -> None:
    store.create_run(entry())
    child = start("append", url, RUN, "0", "never", "3000")
    chance = random.Random(seed)  # noqa: S311  (a seed that a failure names)
    said = [child.stdout.readline() for _ in range(chance.randrange(1, 30))]
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(chance.random() / 50)  # somewhere within a step
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    acknowledged = [int(line) for line in (*said, *rest.split())]
    standing = steps_of(store)
    assert standing[: len(acknowledged)] == acknowledged
    assert len(standing) - len(acknowledged) <= 1


@pytest.mark.proves("lease-expiry")
def test_of_several_processes_one_takes_the_lease_of_a_dead_one(
    store: StateStore, url: str, start: Start
) -> None:
    dead = start("take", url, "dead", "90")
    dead.communicate("\n", timeout=30)
    standing = store.lease("uuid").read()
    assert isinstance(standing, LeaseRecord)
    assert standing.run == "dead"
    racers = [start("take", url, f"racer{number}", "90") for number in range(4)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    said = [racer.stdout.readline() for racer in racers]
    won = [line for line in said if line.startswith("took")]
    assert won == ["took 2 True\n"]
    winner = racers[said.index(won[0])]
    refused = [
        line for line in said if line.startswith("refused another run holds the lease on prod: run racer")
    ]
    assert len(refused) == 3
    after = store.lease("uuid").read()
    assert isinstance(after, LeaseRecord)
    assert after.run == f"racer{racers.index(winner)}"
    assert all(after.owner in line for line in refused)


@pytest.mark.usefixtures("store")
def test_only_a_killed_holder_elsewhere_is_outlasted(url: str, start: Start) -> None:
    """The first holder says it is on another machine: only its heartbeat tells of it."""
    holder, other, heir = (start("take", url, name, "1.5") for name in ("holder", "other", "heir"))
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert [holder.stdout.readline() for _ in range(2)] == ["ready\n", "took 1 False\n"]
    output, _ = other.communicate("\n", timeout=30)
    assert "refused another run holds the lease on prod: run holder of holder@here" in output
    holder.send_signal(signal.SIGKILL)
    output, _ = heir.communicate("\n", timeout=30)
    assert output == "ready\ntook 2 True\n"
