"""The lease of a Riak cluster: an exclusive file on a majority of the machines of its members.

Riak itself has no place that only one can take (docs/development/adr/0007-riak-lease-on-hosts.md), and its
hosts have: a file that `ln` makes only where none of its name exists. Of all that want epoch N only one gets
a majority.

- A number counts unless a majority of the machines answered without a file of that number. So every reader
  that reaches a majority sees each lease that a majority accepted. A file on only one machine is recognized
  as a failed attempt or as a file from outside this program.
- The file with the highest number that counts is the lease. If files of one number differ, several runs
  wanted it: the run with the most machines has it. Of the files of one run, the latest heartbeat is read.
- A released lease is removed. If it cannot be removed everywhere (a host is unreachable, another account left
  a file), a mark says that it is released, and the next lease uses the next number.

The limit is the same as in Elasticsearch: a heartbeat first *reads* that no higher number counts, then
replaces our files. A takeover between the two is seen at the next heartbeat.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.reading import Garbled, Reading, Seconds, Unknown
from orchestrator.next_command import next_command
from orchestrator.riak.admin import AdminCommand, Runner
from orchestrator.riak.lease_files import (
    Damaged,
    Folder,
    KeptFile,
    LeaseMark,
    Listing,
    fault_of,
    parse_left,
    parse_listing,
    parse_put,
    text_of,
)
from orchestrator.riak.output import CommandOutput, reading

Key: TypeAlias = tuple[int, str, str]
"""A lease of a process: epoch, run and process."""
SHOWN: Final = 5
"""Items of a long list in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that answered."""

    node: NodeName  # the first of the nodes on it that did
    listing: Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedLease:
    """A lease that most machines agree on."""

    number: int
    kept: KeptFile
    machines: int  # number of machines with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The lease files on the machines of a cluster."""

    # the machines that answered, in the order of their nodes, which is the same for every run
    machines: Sequence[Machine]
    silent: Mapping[NodeName, str]  # the errors of nodes whose machine did not answer through any node
    total: int  # number of machines; a node with an unknown machine counts as a machine of its own

    @property
    def majority(self) -> int:
        """The number of machines that is a majority."""
        return self.total // 2 + 1

    @property
    def has_majority(self) -> bool:
        """Whether a majority answered."""
        return len(self.machines) >= self.majority

    @property
    def whole(self) -> bool:
        """Whether all machines answered."""
        return len(self.machines) == self.total

    @property
    def too_few(self) -> str:
        """Why the census has no result."""
        why = "; ".join(f"{node}: {reason}" for node, reason in list(self.silent.items())[:SHOWN])
        return (
            f"{len(self.machines)} of {self.total} machines answered, and the lease needs {self.majority} "
            f"({why or 'the cluster has no members'})"
        )

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of all files."""
        return frozenset(number for machine in self.machines for number in machine.listing.files)

    def counts(self, number: int) -> bool:
        """Whether the number may be on a majority, or leaves no majority for another one."""
        without = sum(number not in machine.listing.files for machine in self.machines)
        return without < self.majority

    def up_to(self, number: int) -> frozenset[int]:
        """The numbers up to this one."""
        return frozenset(each for each in self.numbers if each <= number)

    def at(self, number: int) -> Sequence[AgreedLease]:
        """The leases with this number, each with the latest record of its run."""
        files = [machine.listing.files.get(number) for machine in self.machines]
        kept = [file for file in files if isinstance(file, KeptFile)]
        return [
            AgreedLease(number=number, kept=_latest(of, self.majority), machines=len(of))
            for key in dict.fromkeys(each.key for each in kept)
            if (of := [each for each in kept if each.key == key])
        ]

    def with_key(self, key: Key) -> Sequence[AgreedLease]:
        """The same for one lease, whether its number counts or not."""
        return [found for number in self.numbers for found in self.at(number) if found.kept.key == key]


def count(listings: Mapping[NodeName, Reading[Listing]], known: Mapping[NodeName, str]) -> Census:
    """Group nodes by machine; `known` has the earlier machine of a node that did not answer."""
    machines: dict[str, Machine] = {}
    silent: dict[NodeName, str] = {}
    for node, listing in sorted(listings.items()):
        if isinstance(listing, Unknown):
            silent[node] = listing.reason
        else:
            machines.setdefault(listing.place, Machine(node=node, listing=listing))
    away = {node: known.get(node, f"of {node} alone") for node in silent}
    lone = {node: place for node, place in away.items() if place not in machines}
    return Census(
        machines=tuple(machines.values()),
        silent={node: silent[node] for node in lone},
        total=len(machines) + len(set(lone.values())),
    )


def _latest(files: Sequence[KeptFile], majority: int) -> KeptFile:
    """The last record of one run. A release counts only if a majority has it."""
    released = [file for file in files if file.mark is LeaseMark.RELEASED]
    held = [file for file in files if file.mark is LeaseMark.HELD]
    latest = released if len(released) >= majority or not held else held
    return max(latest, key=lambda file: file.record.heartbeat)


def most(found: Sequence[AgreedLease]) -> AgreedLease | None:
    """The lease on the most machines; among equals the one that was refreshed most often."""
    return max(
        found,
        key=lambda each: (each.machines, each.kept.record.heartbeat, each.number, each.kept.record.run),
        default=None,
    )


ROUND_SECONDS: Final[Seconds] = 10.0
"""For one command on all hosts. Shorter than the heartbeat's interval (15 s)."""
GRACE_SECONDS: Final[Seconds] = 2.0
"""For the last hosts, once a majority has answered: a dead host must not delay every stop and start."""

_Answers: TypeAlias = dict[NodeName, Reading[CommandOutput]]


class RiakLease:
    """`LeasePort` in files on the hosts of a Riak cluster. Thread-safe.

    Args:
        runner: runs commands on the machines of nodes, as the account that reaches them.
        members: all members of the cluster, including those that are down.
        folder: where the files are.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        runner: Runner,
        members: Callable[[], Reading[Collection[NodeName]]],
        folder: Folder,
        *,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._folder, self._members = folder, members
        self._round = _Round(runner, clock)
        self._lock = threading.RLock()  # heartbeats and the run itself come from two threads
        self._places: dict[NodeName, str] = {}
        self._ours: dict[Key, LeaseRecord] = {}
        self._unproven: set[Key] = set()

    def read(self) -> Reading[LeaseRecord | None]:
        """The record of the lease; None if there is none; `Unknown` without a majority of the machines."""
        with self._lock:
            census = self._census()
            if isinstance(census, Unknown):
                return census
            found = self._leading(census)
            if found is None or isinstance(found, Unknown):
                return found
            if found.kept.mark is LeaseMark.RELEASED:
                return None
            if found.kept.key in self._unproven and found.machines < census.majority:
                return Unknown(
                    reason=f"our own attempt to take the lease reached {found.machines} of {census.total} "
                    "machines and could not be withdrawn there"
                )
            return found.kept.record

    def create(self, record: LeaseRecord) -> ActionResult:
        """Create this epoch on a majority of the machines; `Refused` if another run was first.

        Without a majority the new files are removed again. With one, files of lower numbers are removed: a
        run that is killed and resumed takes a new number each time, and a host lists a limited number.
        """
        text = text_of(record, LeaseMark.HELD)
        if (fault := fault_of(text)) is not None:
            return Refused(reason=f"the record of the lease cannot be written: {fault}")
        with self._lock:
            census = self._census()
            if isinstance(census, Unknown):
                return Refused(reason=census.reason)
            found = self._leading(census)
            if isinstance(found, Unknown):
                return Refused(reason=found.reason)
            held = found is not None and found.kept.mark is LeaseMark.HELD
            if found is not None and held and found.kept.record.epoch >= record.epoch:
                return Refused(reason=_exists_already(found.kept))
            # The epoch belongs to the run, and is 1 again after a release; the number is always higher.
            number = record.epoch if found is None else found.number + 1
            key = (record.epoch, record.run, record.process)
            self._unproven.add(key)
            self._ours[key] = record
            troubles = self._make(census, number, text)
            lost = self._prove(census, number, key, text, troubles)
            if lost is not None:
                return lost
            self._unproven.discard(key)
            self._discard(census, census.up_to(number - 1))  # a file that stays has a lower number
            return Done()

    def write(self, record: LeaseRecord) -> ActionResult:
        """Replace our record on every machine that answers; `Refused` if this run lost the lease.

        A machine that missed an earlier write gets the record now.
        """
        text = text_of(record, LeaseMark.HELD)
        if (fault := fault_of(text)) is not None:
            return Refused(reason=f"the record of the lease cannot be written: {fault}")
        key = (record.epoch, record.run, record.process)
        with self._lock:
            census = self._census()
            if isinstance(census, Unknown):
                return Refused(reason=census.reason)
            found = self._leading(census) or most(census.with_key(key))
            if isinstance(found, Unknown):
                return Refused(reason=found.reason)
            if found is None or found.kept.mark is LeaseMark.RELEASED:
                return Refused(reason="the lease is gone: somebody removed it")
            if found.kept.key != key:
                return Refused(reason=f"the lease is held by {_whose(found.kept)}")
            self._ours[key] = record
            return self._replace(census, found.number, text)

    def try_out(self) -> None:
        """Nothing: the check of each host creates and removes a file in the lease's folder."""

    def remove(self, epoch: int) -> ActionResult:
        """Release our lease of this epoch: remove its files and those of all earlier epochs.

        If a file stays (a host is unreachable, another account's file in a sticky folder), a mark is left.
        """
        with self._lock:
            census = self._census()
            if isinstance(census, Unknown):
                return InDoubt(reason=census.reason)
            found = self._leading(census)
            if isinstance(found, Unknown):
                return InDoubt(reason=found.reason)
            if found is None or found.kept.mark is LeaseMark.RELEASED:
                return Done()
            if found.kept.record.epoch > epoch or found.kept.key not in self._ours:
                return Done()  # another program's, which removes the files of lower numbers itself
            return self._release(census, found)

    def _release(self, census: Census, found: AgreedLease) -> ActionResult:
        number = found.number
        left = self._discard(census, census.up_to(number - 1))
        if not left and census.whole and not self._discard(census, {number}):
            return Done()
        record = replace(
            self._ours[found.kept.key],
            heartbeat=found.kept.record.heartbeat + 1,
            debts=(),
            in_hand=(),
            out_of_service=(),
            hooks_of=None,
            restarted=(),
            left_by="",
        )
        return self._replace(census, number, text_of(record, LeaseMark.RELEASED))

    def _census(self) -> Reading[Census]:
        """The lease files of all machines that answer; `Unknown` without a majority."""
        members = self._members()
        if isinstance(members, Unknown):
            return Unknown(reason=f"the lease could not be read: {members.reason}")

        parsed: dict[NodeName, Reading[Listing]] = {}

        def counted(answers: _Answers) -> Census:
            for node, answer in answers.items():
                if node not in parsed:
                    parsed[node] = (
                        answer if isinstance(answer, Unknown) else reading(partial(parse_listing, answer))
                    )
            return count({node: parsed.get(node, _NO_ANSWER) for node in members}, self._places)

        questions = dict.fromkeys(members, self._folder.list())
        census = counted(self._round.ask(questions, lambda answers: counted(answers).has_majority))
        self._places |= {node: found.place for node, found in parsed.items() if isinstance(found, Listing)}
        return census if census.has_majority else Unknown(reason=census.too_few)

    def _leading(self, census: Census) -> AgreedLease | Garbled | None:
        """The lease; None if no number counts."""
        number = max((each for each in census.numbers if census.counts(each)), default=None)
        if number is None:
            return None
        found = most(census.at(number))
        return found if found is not None else self._garbled(census, number)

    def _garbled(self, census: Census, number: int) -> Garbled:
        path = self._folder.file(number)
        seen = [
            f"on {machine.node} of {file.owner}: {file.why}"
            for machine in census.machines
            if isinstance(file := machine.listing.files.get(number), Damaged)
        ]
        return Garbled(
            reason=f"{path} holds no record that this version can read ({'; '.join(seen[:SHOWN])})",
            remedy=(
                "if a run of a later version wrote it, use that version. With the state file of the run that "
                f"wrote it, `{next_command('restore', 'RUN')}` needs no record; without, restore by hand "
                f"(`{next_command('explain', 'repair-by-hand')}`: the record is unreadable). Then remove the "
                f"file on every host: rm {path}"
            ),
        )

    def _make(self, census: Census, number: int, text: str) -> dict[NodeName, str]:
        """Create the file on every machine without a file of this number. Returns the failures by node.

        The file on the first machine is created first; if that fails, the others are not tried. So if several
        runs begin at once, usually one succeeds, and they do not block each other.
        """
        command = self._folder.create(number, text)
        troubles: dict[NodeName, str] = {}
        free = [machine.node for machine in census.machines if number not in machine.listing.files]
        while free:
            first, *free = free
            answer = self._round.ask({first: command}, _all_of({first})).get(first, _NO_ANSWER)
            trouble = _trouble(answer)
            if trouble is None:
                break
            troubles[first] = trouble
            if trouble == _TAKEN:
                return troubles
        answers = self._round.ask(dict.fromkeys(free, command), _all_of(free))
        for node in free:
            trouble = _trouble(answers.get(node, _NO_ANSWER))
            if trouble is not None:
                troubles[node] = trouble
        return troubles

    def _prove(
        self, before: Census, number: int, key: Key, text: str, troubles: Mapping[NodeName, str]
    ) -> ActionResult | None:
        """None if a majority has our file and there is no higher number; else withdraw our file."""
        census = self._census()
        if isinstance(census, Unknown):
            self._withdraw([machine.node for machine in before.machines], number, text)
            return Refused(reason=census.reason)
        found = self._leading(census)
        ours = isinstance(found, AgreedLease) and (found.number, found.kept.key) == (number, key)
        if isinstance(found, AgreedLease) and ours and found.machines >= census.majority:
            return None
        self._withdraw([m.node for m in census.machines if _key_at(m.listing, number) == key], number, text)
        if isinstance(found, AgreedLease) and not ours and found.kept.mark is LeaseMark.HELD:
            return Refused(reason=_exists_already(found.kept))
        why = [f"{node}: {trouble}" for node, trouble in sorted(troubles.items())[:SHOWN]]
        said = "; ".join((*_rivals(census, number, key), *why)) or census.too_few
        return Refused(reason=f"the file of the lease is not on a majority of the machines ({said})")

    def _withdraw(self, nodes: Collection[NodeName], number: int, text: str) -> None:
        """Remove our attempt everywhere. Files of another run with this number stay."""
        command = self._folder.withdraw(number, text)
        self._round.ask(dict.fromkeys(nodes, command), _all_of(nodes))

    def _replace(self, census: Census, number: int, text: str) -> ActionResult:
        """Write the file on every machine that answered; done if a majority has it."""
        nodes = [machine.node for machine in census.machines]
        answers = self._round.ask(
            dict.fromkeys(nodes, self._folder.replace(number, text)),
            lambda answers: sum(_trouble(each) is None for each in answers.values()) >= census.majority,
        )
        troubles = {node: _trouble(answers.get(node, _NO_ANSWER)) for node in nodes}
        if sum(trouble is None for trouble in troubles.values()) >= census.majority:
            return Done()
        why = "; ".join(f"{node}: {trouble}" for node, trouble in sorted(troubles.items()) if trouble)
        return InDoubt(reason=f"the file of the lease was not written on a majority of the machines ({why})")

    def _discard(self, census: Census, numbers: Collection[int]) -> bool:
        """Remove these files. Returns whether one may be left."""
        nodes = [m.node for m in census.machines if m.listing.files.keys() & set(numbers)]
        answers = self._round.ask(dict.fromkeys(nodes, self._folder.remove(numbers)), _all_of(nodes))
        for node in nodes:
            answer = answers.get(node, _NO_ANSWER)
            if isinstance(answer, Unknown) or reading(partial(parse_left, answer)) != frozenset():
                return True
        return False


def _key_at(listing: Listing, number: int) -> Key | None:
    file = listing.files.get(number)
    return file.key if isinstance(file, KeptFile) else None


def _rivals(census: Census, number: int, key: Key) -> Sequence[str]:
    """The other holders of files with this number."""
    others = [found for found in census.at(number) if found.kept.key != key]
    damaged = [
        f"a file of {file.owner} on {machine.node}"
        for machine in census.machines
        if isinstance(file := machine.listing.files.get(number), Damaged)
    ]
    said = [f"{_whose(each.kept)} on {each.machines} of {census.total}" for each in others]
    return [*said, *damaged][:SHOWN]


def _whose(kept: KeptFile) -> str:
    return f"run {kept.record.run} of {kept.record.owner} (account {kept.owner})"


def _exists_already(kept: KeptFile) -> str:
    return f"epoch {kept.record.epoch} of the lease exists already: it is held by {_whose(kept)}"


_NO_ANSWER: Final = Unknown(reason=f"no answer within {ROUND_SECONDS:.0f} s")
_TAKEN: Final = "taken"


def _trouble(answer: Reading[CommandOutput]) -> str | None:
    return answer.reason if isinstance(answer, Unknown) else parse_put(answer)


def _all_of(nodes: Collection[NodeName]) -> Callable[[Mapping[NodeName, object]], bool]:
    return lambda answers: answers.keys() >= set(nodes)


@dataclass(slots=True)
class _Round:
    """Runs commands on many hosts in parallel. A host that is still busy with an earlier one is skipped."""

    runner: Runner
    clock: Callable[[], Seconds]
    _news: threading.Condition = field(default_factory=threading.Condition)
    _at_work: set[NodeName] = field(default_factory=set)

    def ask(self, commands: Mapping[NodeName, AdminCommand], enough: Callable[[_Answers], bool]) -> _Answers:
        """Run a command on each host. Returns the results that arrived within the limit.

        Args:
            commands: by node.
            enough: whether these answers suffice: the others then get `GRACE_SECONDS` more.
        """
        answers: _Answers = {}
        with self._news:
            mine = [node for node in commands if node not in self._at_work]
            self._at_work |= set(mine)
        for node in mine:
            work = (node, commands[node], answers)
            threading.Thread(target=self._run, args=work, name=f"lease-{node}", daemon=True).start()
        began = self.clock()
        until, satisfied = began + ROUND_SECONDS, False
        with self._news:
            while len(answers) < len(mine):
                if not satisfied and enough(dict(answers)):
                    satisfied, until = True, min(until, self.clock() + GRACE_SECONDS)
                left = until - self.clock()
                if left <= 0:
                    break
                self._news.wait(left)
            return dict(answers)

    def _run(self, node: NodeName, command: AdminCommand, answers: _Answers) -> None:
        answer: Reading[CommandOutput] = Unknown(reason="a defect of this program ended the request")
        try:
            answer = self.runner.run(node, command)
        finally:
            with self._news:
                self._at_work.discard(node)
                answers[node] = answer
                self._news.notify_all()
