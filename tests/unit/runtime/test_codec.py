"""Events, verbs, changes, policies and leases are read from text as they were written; damage is named."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from orchestrator.errors import JournalError
from orchestrator.model import action as verbs
from orchestrator.model import encoding
from orchestrator.model.action import Action, action_name
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    SCHEMA_VERSION,
    ActionConfirmed,
    ActionSent,
    Event,
    PhaseEntered,
    Record,
)
from orchestrator.model.gate import (
    EqualTo,
    Gate,
    HttpAccess,
    HttpJsonGate,
)
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.policy import Hook, Kind, Policy
from orchestrator.model.tuning import Change, FileChange, ValueChange
from orchestrator.runtime import codec

EVENTS, ACTIONS, CHANGES = get_args(Event), get_args(Action), get_args(Change)
ACTION_NAMES: Final = (
    "probe_settings set_allocation restore_allocation restore_settings raise_limits flush retry_failed "
    "force_handoff set_replicas force_merge refresh set_index_settings exclude_from_voting "
    "clear_voting_exclusions stop start reboot hook_before_stop hook_while_stopped hook_after_recovery "
    "install tune"
)
DRAWN: Final = 20
"""Values of each class: many are needed of none, since the fields are independent."""

# Values of any class of the model ------------------------------------

TEXTS: Final = ("", "es1", "a b", "\x00\n\t", "é…", "\U0001f600", '"{}\\', "x" * 12)
NUMBERS: Final = (0, 1, -1, 2**53, -(2**53))
FLOATS: Final = (0.0, 0.1, -1.5, 1e300, 5e-324, 1_800_000_000.123)
ADDRESSES: Final = ("", "10.0.0.1", "fe80::1%eth0", "es_1.example.org.")
"""The model refuses any other text in fields of these names."""


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def drawn_of(cls: type, dice: random.Random) -> Any:
    """A value of a class, with any values of its fields."""
    values = {}
    for field in fields(cls):
        if field.name == "address":
            values[field.name] = dice.choice(ADDRESSES)
        elif field.name == "addresses":
            values[field.name] = {
                dice.choice(TEXTS): dice.choice(ADDRESSES) for _ in range(dice.randint(0, 3))
            }
        elif field.name != "event":
            values[field.name] = drawn(_hints(cls)[field.name], dice)
    return cls(**values)


def drawn(hint: Any, dice: random.Random) -> Any:
    """A value of a type. Written out, so that the numbers are finite and the text is UTF-8."""
    origin, args = get_origin(hint), get_args(hint)
    some = range(dice.randint(0, 3))
    if hasattr(hint, "__supertype__"):
        return drawn(hint.__supertype__, dice)
    if origin in (Union, types.UnionType):
        return drawn(dice.choice(args), dice)
    if origin is tuple:
        if args[1:] == (...,):
            return tuple(drawn(args[0], dice) for _ in some)
        return tuple(drawn(arg, dice) for arg in args)
    if origin is frozenset:
        return frozenset(drawn(args[0], dice) for _ in some)
    if origin is Mapping:
        return {drawn(args[0], dice): drawn(args[1], dice) for _ in some}
    if origin is Literal:
        return dice.choice(args)
    if is_dataclass(hint):
        return drawn_of(hint, dice)
    if issubclass(hint, Enum):
        return dice.choice(list(hint))
    plain = {str: TEXTS, bool: (True, False), int: NUMBERS, float: FLOATS, type(None): (None,)}
    return dice.choice(plain[hint])


def drawn_each(*classes: type, count: int = DRAWN) -> Iterator[Any]:
    """So many values of each class."""
    for cls in classes:
        dice = random.Random(cls.__name__)  # noqa: S311  (repeatable)
        for _ in range(count):
            yield drawn_of(cls, dice)


def through_text(data: Mapping[str, object]) -> Mapping[str, Any]:
    text = codec.to_text(data)
    assert text.isascii()
    assert "\n" not in text
    return codec.from_text(text)


def test_every_event_comes_back_as_it_went() -> None:
    for event in drawn_each(*EVENTS):
        data = encoding.encode_event(event)
        assert next(iter(data)) == "event"
        assert codec.decode_event(through_text(data)) == event
    for sequence, event in enumerate(drawn_each(PhaseEntered), start=1):
        record = Record(run="r", sequence=sequence, at=sequence / 7, event=event)
        assert codec.record_of("r", sequence, record.at, str(codec.row(record)["event"])) == record


def test_every_verb_and_change_comes_back_as_itself() -> None:
    for action in drawn_each(*ACTIONS):
        data = encoding.encode_action(action)
        back = codec.decode_action(through_text(data))
        assert (data["verb"], type(back), back) == (action_name(action), type(action), action)
    for change in drawn_each(*CHANGES):
        again = codec.decode_change(through_text(encoding.fields_of(change)))
        assert (type(again), again) == (type(change), change)


def test_a_policy_and_a_lease_record_come_back() -> None:
    for policy in drawn_each(Policy, count=3 * DRAWN):
        assert codec.decode_policy(through_text(encoding.fields_of(policy))) == policy
    for lease in drawn_each(LeaseRecord, count=3 * DRAWN):
        assert codec.decode_lease(through_text(codec.encode_lease(lease))) == lease


def test_what_has_one_shape_is_told_apart() -> None:
    es1, path = NodeName("es1"), "/proc/sys/vm/swappiness"
    changes = (ValueChange(path=path, found="60", wanted="1"), FileChange(path=path, found="60", wanted="1"))
    sent = ActionSent(action=verbs.TuneHost(node=es1, tunable="vm.swappiness", changes=changes))
    assert codec.decode_event(through_text(encoding.encode_event(sent))) == sent
    for verb, cls in (("stop", verbs.StopNode), ("start", verbs.StartNode)):
        assert codec.decode_action({"verb": verb, "node": "es1"}) == cls(node=es1)
    assert set(codec._VERBS.values()) == set(ACTIONS)
    assert sorted(codec._VERBS) == sorted(ACTION_NAMES.split())


def test_every_union_of_dataclasses_is_tagged() -> None:
    """Pydantic would have to guess which of several classes was meant; only these four have tags."""
    seen: set[Any] = set()

    def visit(hint: Any) -> None:
        if hint in (Action, Event, Change, Gate) or hint in seen:
            return
        if get_origin(hint) in (Union, types.UnionType):
            assert sum(is_dataclass(arg) for arg in get_args(hint)) < 2, hint
        for arg in get_args(hint):
            if isinstance(arg, type) or get_origin(arg):
                visit(arg)
        if is_dataclass(hint):
            seen.add(hint)
            for name, inner in get_type_hints(hint).items():
                assert hint in EVENTS or not name.endswith("_"), f"{hint}.{name} is nested"
                visit(inner)

    for cls in (*EVENTS, *ACTIONS, LeaseRecord, Policy):
        visit(cls)
    assert Hook in seen


def test_the_text_of_an_event() -> None:
    """A keyword loses its underscore; output need not be UTF-8; a field of a later version is passed over."""
    event = PhaseEntered(from_="gated", to="withheld")
    data = encoding.encode_event(event)
    nothing = {"node": None, "why": "", "incarnation": None, "boot": None}
    assert data == {"event": "phase_entered", "from": "gated", "to": "withheld", **nothing}
    assert codec.decode_event({**data, "colour": "red"}) == event
    broken = b"caf\xe9".decode("utf-8", "surrogateescape")
    ended = ActionConfirmed(action=verbs.Flush(), output=broken + "\x00\x1b[31m\n")
    back = codec.decode_event(through_text(encoding.encode_event(ended)))
    assert isinstance(back, ActionConfirmed)
    assert back.output == "caf?\x00\x1b[31m\n"


# What an earlier or later version wrote, and damage ------------------------------------


def _without(data: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in data.items() if key != name}


def test_a_missing_field_is_damage() -> None:
    for event in drawn_each(*EVENTS, count=1):
        example = encoding.encode_event(event)
        for field in fields(event):
            if field.default is MISSING and field.default_factory is MISSING:
                with pytest.raises(JournalError, match="damaged"):
                    codec.decode_event(_without(example, field.name.rstrip("_")))


TUNE: Final = {"verb": "tune", "node": "es1", "tunable": "numad"}


def test_what_cannot_be_read_is_named(subtests: pytest.Subtests) -> None:
    lease = codec.encode_lease(LeaseRecord(epoch=1, run="r", owner="o", process="p", started="s"))
    policy = encoding.fields_of(Policy(kind=Kind.ELASTICSEARCH, cluster="prod"))
    later = {**lease, "schema": SCHEMA_VERSION + 1}
    bare = {"change": "value", "path": "/x"}
    sent = {"event": "action_sent"}
    cases: list[tuple[Callable[[Any], object], object, str]] = [
        (codec.decode_event, {"event": "tea_served"}, "tea_served"),
        (codec.decode_event, {"event": 3}, "does not know"),
        (codec.decode_event, {**sent, "action": {"verb": "explode"}}, "explode"),
        (codec.decode_event, {**sent, "action": {"node": "es1"}}, "does not know"),
        (codec.decode_event, {**sent, "action": TUNE | {"changes": [{"path": "/x"}]}}, "verb tune, changes"),
        (codec.decode_event, {**sent, "action": TUNE | {"changes": [bare]}}, "changes.0.value.found"),
        (codec.decode_event, {"event": "wave_finished", "number": "x", "seconds": 1.0}, "_finished, number"),
        (codec.decode_event, {"event": "lease_lost", "reason": 7}, "lease_lost, reason"),
        (codec.decode_lease, later, "later version .* use that version"),
        (codec.decode_lease, {"epoch": 1}, "no schema version"),
        (codec.decode_policy, {**policy, "gates": [{"gate": "oracle", "name": "x"}]}, "gates"),
        *((codec.from_text, text, "damaged") for text in ("{", "[1]", "", "null")),
    ]
    for decode, data, words in cases:
        with subtests.test(data=data), pytest.raises(JournalError, match=words):
            decode(data)
    hook = Hook(run="x", timeout=float("inf"))
    moment = verbs.Moment.BEFORE_STOP
    endless = verbs.RunHook(node=NodeName("es1"), moment=moment, number=1, hook=hook)
    with pytest.raises(JournalError, match="JSON"):
        codec.to_text(encoding.encode_event(ActionSent(action=endless)))


def test_a_value_of_a_gate_keeps_its_type() -> None:
    """5, 5.0, True and their texts are different answers of a server."""
    at, values = HttpAccess(url="https://mq:15671"), ("5", 5, 5.5, True, None, "true")
    gates = tuple(HttpJsonGate(name="text", at=at, path="a.b", equals=EqualTo(value=one)) for one in values)
    wanted = Policy(kind=Kind.ELASTICSEARCH, cluster="prod", gates=gates)
    back = codec.decode_policy(through_text(encoding.fields_of(wanted)))
    assert back == wanted
    found = [gate.equals for gate in back.gates if isinstance(gate, HttpJsonGate) and gate.equals]
    assert [type(one.value) for one in found] == [str, int, float, bool, type(None), str]
