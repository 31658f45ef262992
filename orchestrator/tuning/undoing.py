"""Whether a host still shows a value of this program, so that it may be undone. Other values are not touched.

Pure: facts in, the one change to make out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from orchestrator.model.host import NOT_TEXT, HostFacts, ServiceFacts
from orchestrator.model.reading import NOT_READ, Reading, Unknown
from orchestrator.model.tuning import (
    BlockChange,
    Change,
    FileChange,
    ServiceChange,
    ServiceMode,
    TunedChange,
    ValueChange,
    subject_of,
)
from orchestrator.tuning.blocks import block_in, has_stray_marks
from orchestrator.tuning.boot import NAME, PARTS, is_of_boot, is_part, is_shared, other_parts
from orchestrator.tuning.tunable import FactReads
from orchestrator.tuning.tuning_script import is_own_folder
from orchestrator.tuning.values import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The host no longer has the subject: a disk was removed, a service was uninstalled."""


Shown: TypeAlias = str | ServiceMode | Gone | None
"""The host's present value of a change's subject, in the form of the change's own `found` and `wanted`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """The host shows a value of this program: this change restores the original value."""

    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """There is nothing to do, with the reason: the original value is there, or the subject is gone."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """The host shows neither a value of this program nor the original one: another change, which stays."""

    shows: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The host shows a value of this program, which stays with something else, for this reason."""

    why: str


Standing: TypeAlias = Ours | Back | Foreign | Kept

NO_MORE: Final = "no longer exists"
_ORIGINAL: Final = "it has its original value"
_SCHEDULER: Final = "/queue/scheduler"


def rank(change: Change) -> int:
    """The order of undoing, lowest first: changes that reset other values go before those values.

    Parts go first: our unit would set their values again, and what all parts share stays on the host while
    one of them is there. A switch of tuned's profile writes that profile's values, and a new scheduler begins
    with its own queue depth: either would overwrite values that were restored before.
    A unit that this program removed is enabled last, when its files are back.
    """
    match change:
        case ServiceChange(found=original) if is_shared(change):
            return 3 if original.enabled else -1
        case FileChange() if is_part(change):
            return -2
        case TunedChange():
            return 0
        case FileChange(path=path) if path.startswith("/etc/tuned/"):
            return 0
        case ValueChange(path=path) if path.endswith(_SCHEDULER):
            return 1
        case _:
            return 2


def again(change: Change, standing: Back, *, reset: bool) -> Change | None:
    """The change that completes an undo whose subject has its original value; None if there is none.

    Args:
        change: the first change of this program, with the original value.
        standing: the host's state before.
        reset: whether another undo may have reset a value since.
    """
    match change:
        case ValueChange(path=path, found=original) if reset and standing.why != NO_MORE:
            return ValueChange(path=path, found=change.wanted, wanted=original)
        case FileChange(path=path, found=None) if standing.why == _ORIGINAL:
            # A kill between the file and its folder leaves the empty folder.
            if is_own_folder(path.rpartition("/")[0]):
                return FileChange(path=path, found=None, wanted=None)
    return None


def reads_for(changes: Sequence[Change]) -> FactReads:
    """The facts to read from a host to compare it with these changes."""
    files = [one.path for one in changes if isinstance(one, ValueChange | FileChange | BlockChange)]
    services = [one.service for one in changes if isinstance(one, ServiceChange)]
    if any(is_shared(one) for one in changes):
        files.append(PARTS)
    return FactReads(
        files=tuple(dict.fromkeys(files)),
        services=tuple(dict.fromkeys(services)),
        tuned=any(isinstance(one, TunedChange) for one in changes),
    )


def standing(
    facts: HostFacts, undoing: Sequence[Change], *, parts: Collection[str] = ()
) -> Reading[Standing]:
    """The host's state for one subject with unrestored changes.

    Args:
        facts: of the host, with the parts that `reads_for` names.
        undoing: the inverses of this program's changes of the subject; all end at the original value. Empty
            if every value of this program equals the original one.
        parts: parts of the boot script that are undone as well; the script stays for any other.
    """
    if not undoing:
        return Back(why=_ORIGINAL)
    others = other_parts(facts, parts) if is_shared(undoing[0]) else ()
    if others:
        return Back(why=f"it stays for {', '.join(others)}")
    shows = shown(facts, undoing[0])
    if isinstance(shows, Unknown):
        return shows
    if isinstance(shows, Gone):
        return Ours(change=undoing[0]) if _is_enabled_again(undoing[0]) else Back(why=NO_MORE)
    ours = next((change for change in undoing if shows == _plain(change, change.found)), None)
    if ours is not None:
        return Ours(change=ours)
    if shows == _plain(undoing[0], undoing[0].wanted):
        return Back(why=_ORIGINAL)
    for change in undoing:
        if isinstance(change, FileChange) and isinstance(shows, str) and _is_piece(shows, change):
            return Ours(change=replace(change, found=shows))
        if isinstance(change, ServiceChange) and shows in _halfway(change.wanted, change.found):
            return Ours(change=change)
    return Foreign(shows=_words(shows))


def shown(facts: HostFacts, change: Change) -> Reading[Shown]:
    """The host's present value of a change's subject."""
    match change:
        case ValueChange(path=path):
            text = facts.text(path)
            if isinstance(text, Unknown):
                return text
            return Gone() if text is None else _value(text)
        case FileChange(path=path):
            return facts.exact(path)
        case BlockChange(path=path, name=name):
            text = facts.text(path)
            return _block(path, text, name) if isinstance(text, str) else text
        case ServiceChange(service=service):
            found = facts.services.get(service, NOT_READ)
            if isinstance(found, ServiceFacts) and service == NAME:
                found = replace(found, running=False)  # it runs for moments: at boot, and when tuned starts
            return _mode(found) if isinstance(found, ServiceFacts) else found
        case TunedChange():
            return facts.tuned
        case _:
            assert_never(change)


def _block(path: str, text: str, name: str) -> Reading[str | None]:
    """The lines of this program. The bytes around them may be invalid text: they are never sent."""
    if has_stray_marks(text, name):
        return Unknown(
            reason=f"{path}: somebody edited the marks of orchestrate {name}: take its lines away by hand;"
            " where a kill has cut the file, the text before is in ~/.orchestrate-kept there, and"
            " `tune apply` restores it"
        )
    lines = block_in(text, name)
    if lines is not None and NOT_TEXT in lines:
        return Unknown(reason=f"{path}: the lines of orchestrate {name} are no text in UTF-8 any more")
    return lines


def _is_enabled_again(undoing: Change) -> bool:
    """Whether it enables our unit, which this program removed: its files are restored before."""
    return isinstance(undoing, ServiceChange) and is_shared(undoing) and undoing.wanted.enabled


def _value(text: str) -> str:
    """The word in brackets, if there are several words; otherwise the whole value with single blanks."""
    choices = parse(text)
    return choices.current if choices.bracketed and choices.current is not None else " ".join(text.split())


def _mode(facts: ServiceFacts) -> ServiceMode | Gone:
    if not facts.present:
        return Gone()
    return ServiceMode(running=facts.running, enabled=facts.enabled, masked=facts.masked)


def _plain(change: Change, value: str | ServiceMode | None) -> Shown:
    """A value as `shown` returns it: blanks do not count in a kernel value, and count in a file."""
    return " ".join(value.split()) if isinstance(change, ValueChange) and isinstance(value, str) else value


def _is_piece(text: str, change: FileChange) -> bool:
    """Whether a text is the beginning of one that this program wrote or restored: a kill leaves one."""
    return any(isinstance(whole, str) and whole.startswith(text) for whole in (change.found, change.wanted))


def whole(standings: Sequence[tuple[Change, Reading[Standing]]]) -> list[Reading[Standing]]:
    """The same states of one machine; what sets values at boot is undone as a whole, or stays as a whole.

    If a file of it was changed by a person, the script would set the values again, or a part would be left
    without its script. So all of it stays, with the values that it sets.
    """
    held = [change for change, one in standings if is_of_boot(change) and isinstance(one, Foreign | Unknown)]
    if not held:
        return [one for _, one in standings]
    names = ", ".join(map(subject_of, held))
    cause = "is changed by others or unreadable"
    why = f"it stays while {names} {cause}: run `orchestrate tune apply`, then revert"
    kept = Kept(why=why)
    return [
        kept if isinstance(one, Ours) and (is_of_boot(change) or isinstance(change, ValueChange)) else one
        for change, one in standings
    ]


def _halfway(original: ServiceMode, ours: ServiceMode) -> set[ServiceMode]:
    """The states of a service in the middle of a change, or of its inverse: a kill leaves one of them."""
    found: set[ServiceMode] = set()
    for mode, end in ((original, ours), (ours, original)):
        now = replace(mode, masked=mode.masked and end.masked)
        found.add(now)
        now = replace(now, running=now.running and end.running)
        found.add(now)
        if not now.masked:
            now = replace(now, enabled=end.enabled and not end.masked)
            found.add(now)
        found.add(replace(now, running=end.running))
    return found


def _words(shows: Shown) -> str:
    match shows:
        case ServiceMode(running=running, enabled=enabled, masked=masked):
            boot = "masked" if masked else "enabled" if enabled else "disabled"
            return f"{'running' if running else 'stopped'}, {boot}"
        case str():
            return shows if "\n" not in shows.strip() else "another text"
        case _:
            return "nothing"
