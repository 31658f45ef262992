"""Riak's Erlang schedulers: one less for every six logical CPUs, since idle ones wait busily.

Riak 2 and 3 read `riak.conf`; its last line for a key counts. Riak 1.4 reads `vm.args`, and so does a later
Riak that still finds both old files beside it. `+S` in `advanced.config` takes precedence over `riak.conf`;
it is an Erlang term that a person wrote, and is never changed. Either file counts at a stop and start, not
at a `riak restart` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.model.host import FileText, HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import BlockChange, TuningProfile, TuningSetting
from orchestrator.tuning.blocks import block_in, with_block
from orchestrator.tuning.tunables.numbers import is_number
from orchestrator.tuning.tunables.tunable import Absent, FactReads, Part, Tunable

_CONF: Final = "/etc/riak/riak.conf"
_ARGS: Final = "/etc/riak/vm.args"
_APP: Final = "/etc/riak/app.config"
_ADVANCED: Final = "/etc/riak/advanced.config"
_TOTAL: Final = "erlang.schedulers.total"
_ONLINE: Final = "erlang.schedulers.online"
_AUTO: Final = "auto"
_ONE_LESS_FOR: Final = 6
_MOST: Final = 1024
"""The maximum number of schedulers of an Erlang machine (`erl`, flag `+S`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFile:
    """The number that a file sets."""

    value: str | None = None  # total and online; None if no file sets it
    by: str = ""  # the file
    unsure: str = ""  # why it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ErlangSchedulers(Tunable):
    """The number of schedulers, total and online."""

    name: str = "erlang.schedulers"

    @property
    def reads(self) -> FactReads:
        """Riak's files."""
        return FactReads(files=(_CONF, _ARGS, _APP, _ADVANCED))

    def valid(self, setting: TuningSetting) -> str | None:
        """The formula, or a number."""
        wanted = setting.wanted
        if wanted == _AUTO or (isinstance(wanted, str) and is_number(wanted) and 0 < int(wanted) <= _MOST):
            return None
        return f"must be {_AUTO} (one less for every six logical CPUs) or a whole number up to {_MOST}"

    def parts(self, facts: HostFacts, setting: TuningSetting, _: TuningProfile) -> Iterator[Part | Absent]:
        """The number that Riak will have at its next start, and this program's lines in its file."""
        file, number = _file(facts), _wanted(facts, setting)
        if file is None:
            yield Absent(why="there is no Riak in /etc/riak")
            return
        text, wanted = facts.text(file), "" if number is None else f"{number}:{number}"
        found = _found(facts, file, text)
        right = None if found.unsure or number is None else found.value == wanted
        lines = f"{_TOTAL} = {number}\n{_ONLINE} = {number}" if file == _CONF else f"+S {wanted}"
        changes = tuple[BlockChange, ...]()
        if right is False and isinstance(text, str) and "\0" not in text:
            change = BlockChange(path=file, name=self.name, found=block_in(text, self.name), wanted=lines)
            # A later line of the file, or another file, may still take precedence.
            later = _found(facts, file, with_block(text, self.name, lines))
            changes = (change,) if later.value == wanted else ()
        overridden = f"{_ADVANCED} overrides it with +S: change it there" if found.by == _ADVANCED else ""
        yield Part(
            wanted=wanted,
            found="not set" if found.value is None else f"{found.value}, from the next start on",
            at_boot="not set" if found.value is None else f"{found.value} by {found.by}",
            running=right,
            detail=found.unsure or ("the number of CPUs is not known" if number is None else overridden),
            changes=changes,
        )


def schedulers(cpus: int) -> int:
    """One less for every six logical CPUs: 12 → 10, 16 → 14, 24 → 20 (Basho's tuning guide for R16)."""
    return cpus - cpus // _ONE_LESS_FOR


def _wanted(facts: HostFacts, setting: TuningSetting) -> int | None:
    if setting.wanted != _AUTO:
        return int(str(setting.wanted))
    return schedulers(facts.cpus) if facts.cpus > 0 else None


def _file(facts: HostFacts) -> str | None:
    """The file that counts: both old files together take precedence over the new one."""
    if facts.text(_ARGS) is not None and (facts.text(_APP) is not None or facts.text(_CONF) is None):
        return _ARGS
    return _CONF if facts.text(_CONF) is not None else None


def _found(facts: HostFacts, file: str, text: FileText) -> _InFile:
    if not isinstance(text, str):
        return _InFile(unsure=f"{file} could not be read")
    if file == _ARGS:
        return _in_file(re.findall(r"^\s*\+S\s+(\d+)(?::(\d+))?", text, re.MULTILINE), file)
    advanced = facts.text(_ADVANCED)
    if isinstance(advanced, Unknown):
        return _InFile(unsure=f"{_ADVANCED} could not be read: {advanced.reason}")
    bare = re.sub(r"%.*", "", advanced or "")
    winning = re.findall(r'"\+S"\s*,\s*"(\d+)(?::(\d+))?"', bare)
    if winning:
        return _in_file(winning, _ADVANCED)
    total, online = (_last(text, key) for key in (_TOTAL, _ONLINE))
    if total is None and online is None:
        return _InFile()
    return _InFile(value=f"{total or '?'}:{online or '?'}", by=file)


def _in_file(pairs: list[tuple[str, str]], file: str) -> _InFile:
    if not pairs:
        return _InFile()
    total, online = pairs[-1]
    return _InFile(value=f"{total}:{online or total}", by=file)


def _last(text: str, key: str) -> str | None:
    found = re.findall(rf"^\s*{re.escape(key)}\s*=\s*(\S+)", text, re.MULTILINE)
    return found[-1] if found else None


ERLANG_SCHEDULERS: Final = ErlangSchedulers()
