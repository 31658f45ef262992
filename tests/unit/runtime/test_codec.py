from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import JournalError
from orchestrator.model import action as verbs
from orchestrator.model.action import Action, action_name
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    SCHEMA_VERSION,
    ActionConfirmed,
    ActionSent,
    BaselineRecorded,
    Event,
    PhaseEntered,
    Record,
    RunStarted,
)
from orchestrator.model.gate import (
    CommandGate,
    EqualTo,
    Gate,
    HttpAccess,
    HttpJsonGate,
    PrometheusGate,
    RabbitQueueGate,
    Within,
)
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.policy import Hook, Kind, Policy
from orchestrator.model.tuning import Change, FileChange, ValueChange
from orchestrator.runtime import codec

EVENTS = get_args(Event)
ACTIONS = get_args(Action)
CHANGES = get_args(Change)
ACTION_NAMES = [
    "probe_settings", "set_allocation", "restore_allocation", "restore_settings", "raise_limits", "flush",
    "retry_failed", "force_handoff", "set_replicas", "force_merge", "refresh", "set_index_settings",
    "exclude_from_voting", "clear_voting_exclusions", "stop", "start",
    "reboot", "hook_before_stop", "hook_while_stopped", "hook_after_recovery", "install", "tune",
]  # fmt: skip
TUNE = {"verb": "tune", "node": "es1", "tunable": "numad"}
BARE = {"change": "value", "path": "/x"}
RELAXED = settings(deadline=None, max_examples=40)
"""On a busy machine any example may be slow; many are needed of none, since the fields are independent."""
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


ADDRESS = st.sampled_from(["", "10.0.0.1", "fe80::1%eth0", "es_1.example.org."])
ADDRESSES = {"address": ADDRESS, "addresses": st.dictionaries(TEXT, ADDRESS, max_size=3)}
"""By field: the model refuses any other text there."""


def of_class(cls: type) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    drawn = {f.name: of_type(hints[f.name]) for f in fields(cls) if f.name not in (*ADDRESSES, "event")}
    return st.builds(cls, **drawn, **{name: ADDRESSES[name] for name in hints if name in ADDRESSES})


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type of the model. Written out, so that the numbers are finite and the text is UTF-8."""
    origin, args = get_origin(hint), get_args(hint)
    if hasattr(hint, "__supertype__"):
        return of_type(hint.__supertype__)
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(arg) for arg in args])
    if origin is tuple:
        assert args[1:] == (...,) or len(args) > 1
        if args[1:] == (...,):
            return st.lists(of_type(args[0]), max_size=3).map(tuple)
        return st.tuples(*map(of_type, args))
    if origin is frozenset:
        return st.frozensets(of_type(args[0]), max_size=3)
    if origin is Mapping:
        return st.dictionaries(of_type(args[0]), of_type(args[1]), max_size=3)
    if origin is Literal:
        return st.sampled_from(args)
    if is_dataclass(hint):
        return of_class(hint)
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    return {
        str: TEXT,
        bool: st.booleans(),
        int: st.integers(min_value=-(2**53), max_value=2**53),
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
    }[hint]


def through_text(data: Mapping[str, object]) -> Mapping[str, object]:
    text = codec.to_text(data)
    assert text.isascii()
    assert "\n" not in text
    return codec.from_text(text)


def examples(cls: type, check: Callable[[Any], None]) -> None:
    """Check generated values of a class."""
    RELAXED(given(of_class(cls))(check))()


def test_every_event_comes_back_as_it_went(subtests: pytest.Subtests) -> None:
    def there_and_back(event: Event) -> None:
        data = codec.encode_event(event)
        assert next(iter(data)) == "event"
        assert codec.decode_event(through_text(data)) == event

    for cls in EVENTS:
        with subtests.test(cls.__name__):
            examples(cls, there_and_back)


def test_every_verb_comes_back_as_itself(subtests: pytest.Subtests) -> None:
    def there_and_back(action: Action) -> None:
        data = codec.encode_action(action)
        assert data["verb"] == action_name(action)
        back = codec.decode_action(through_text(data))
        assert type(back) is type(action)
        assert back == action

    for cls in ACTIONS:
        with subtests.test(cls.__name__):
            examples(cls, there_and_back)


def test_every_change_of_tuning_comes_back_as_itself(subtests: pytest.Subtests) -> None:
    def there_and_back(change: Change) -> None:
        back = codec.decode_change(through_text(codec.encode_change(change)))
        assert type(back) is type(change)
        assert back == change

    for cls in CHANGES:
        with subtests.test(cls.__name__):
            examples(cls, there_and_back)


def test_changes_of_one_shape_are_told_apart() -> None:
    value = ValueChange(path="/proc/sys/vm/swappiness", found="60", wanted="1")
    file = FileChange(path="/proc/sys/vm/swappiness", found="60", wanted="1")
    sent = ActionSent(
        action=verbs.TuneHost(node=NodeName("es1"), tunable="vm.swappiness", changes=(value, file))
    )
    assert codec.decode_event(through_text(codec.encode_event(sent))) == sent


@RELAXED
@given(of_class(LeaseRecord))
def test_a_lease_record_comes_back(record: LeaseRecord) -> None:
    assert codec.decode_lease(through_text(codec.encode_lease(record))) == record


@RELAXED
@given(of_class(Policy))
def test_a_policy_comes_back(policy: Policy) -> None:
    assert codec.decode_policy(through_text(codec.encode_policy(policy))) == policy


@RELAXED
@given(of_class(PhaseEntered), st.integers(1, 9), st.floats(0, 1e10))
def test_a_record_comes_back(event: Event, sequence: int, at: float) -> None:
    record = Record(run="r", sequence=sequence, at=at, event=event)
    assert codec.decode_record(through_text(codec.encode_record(record))) == record
    row = codec.row(record)
    assert codec.record_of("r", sequence, at, str(row["event"])) == record


def test_verbs_of_one_shape_are_told_apart() -> None:
    node = {"node": "es1"}
    assert codec.decode_action({"verb": "stop", **node}) == verbs.StopNode(node=NodeName("es1"))
    assert codec.decode_action({"verb": "start", **node}) == verbs.StartNode(node=NodeName("es1"))


def test_the_table_of_verbs_is_the_union() -> None:
    assert set(codec._VERBS.values()) == set(ACTIONS)
    assert sorted(codec._VERBS) == sorted(ACTION_NAMES)


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


def test_a_keyword_loses_its_underscore() -> None:
    data = codec.encode_event(PhaseEntered(from_="gated", to="withheld"))
    assert data == {
        "event": "phase_entered",
        "from": "gated",
        "to": "withheld",
        "node": None,
        "why": "",
        "incarnation": None,
        "boot": None,
    }


def test_output_that_was_no_utf8_can_be_written() -> None:
    broken = b"caf\xe9".decode("utf-8", "surrogateescape")
    event = ActionConfirmed(action=verbs.Flush(), output=broken + "\x00\x1b[31m\n")
    back = codec.decode_event(through_text(codec.encode_event(event)))
    assert isinstance(back, ActionConfirmed)
    assert back.output == "caf?\x00\x1b[31m\n"


def test_a_field_of_a_later_version_is_passed_over() -> None:
    data = {**codec.encode_event(PhaseEntered(from_="a", to="b")), "colour": "red"}
    assert codec.decode_event(data) == PhaseEntered(from_="a", to="b")


def test_a_missing_field_is_damage(subtests: pytest.Subtests) -> None:
    def damaged(event: Event) -> None:
        example = codec.encode_event(event)
        for field in fields(event):
            if field.default is MISSING and field.default_factory is MISSING:
                name = field.name.rstrip("_")
                with pytest.raises(JournalError, match="damaged"):
                    codec.decode_event({key: value for key, value in example.items() if key != name})

    for cls in EVENTS:
        with subtests.test(cls.__name__):
            settings(deadline=None, max_examples=1)(given(of_class(cls))(damaged))()


def test_what_cannot_be_read_is_named(subtests: pytest.Subtests) -> None:
    for data, words in [
        ({"event": "tea_served"}, "tea_served"),
        ({"event": 3}, "does not know"),
        ({"event": "action_sent", "action": {"verb": "explode"}}, "explode"),
        ({"event": "action_sent", "action": {"node": "es1"}}, "does not know"),
        ({"event": "action_sent", "action": TUNE | {"changes": [{"path": "/x"}]}}, "verb tune, changes"),
        ({"event": "action_sent", "action": TUNE | {"changes": [BARE]}}, "changes.0.value.found"),
        ({"event": "wave_finished", "number": "x", "seconds": 1.0}, "wave_finished, number"),
        ({"event": "lease_lost", "reason": 7}, "lease_lost, reason"),
    ]:
        with subtests.test(data=data, words=words), pytest.raises(JournalError, match=words):
            codec.decode_event(data)


def test_a_number_that_json_has_no_word_for_is_refused() -> None:
    event = ActionSent(
        action=verbs.RunHook(
            node=NodeName("es1"),
            moment=verbs.Moment.BEFORE_STOP,
            number=1,
            hook=Hook(run="x", timeout=float("inf")),
        )
    )
    with pytest.raises(JournalError, match="JSON"):
        codec.to_text(codec.encode_event(event))


@pytest.mark.parametrize("text", ["{", "[1]", "", "null"])
def test_text_that_is_no_object_is_damage(text: str) -> None:
    with pytest.raises(JournalError, match="damaged"):
        codec.from_text(text)


def test_a_lease_of_a_later_version_is_refused_with_what_to_do() -> None:
    data = codec.encode_lease(LeaseRecord(epoch=1, run="r", owner="o", process="p", started="s"))
    with pytest.raises(JournalError, match=r"later version .* use that version"):
        codec.decode_lease({**data, "schema": SCHEMA_VERSION + 1})
    with pytest.raises(JournalError, match="no schema version"):
        codec.decode_lease({"epoch": 1})


AT = HttpAccess(url="https://mq:15671", timeout=5.0, basic="env:MQ_AUTH", ca="/etc/ca.pem")
GATES: tuple[Gate, ...] = (
    RabbitQueueGate(name="queue", at=AT, queue="ingest", max_messages=2_000_000),
    PrometheusGate(name="rate", at=AT, query="up", within=Within(minimum=1.5)),
    HttpJsonGate(name="number", at=AT, path="a.b", within=Within(maximum=3.0)),
    *(
        HttpJsonGate(name="text", at=AT, path="a.b", equals=EqualTo(value=value))
        for value in ("5", 5, 5.5, True, None, "true")
    ),
    CommandGate(name="script", run="./ok.sh", folder="/etc/orchestrate"),
)


def test_a_policy_with_gates_comes_back_as_it_was() -> None:
    wanted = Policy(kind=Kind.ELASTICSEARCH, cluster="prod", gates=GATES)
    back = codec.decode_policy(through_text(codec.encode_policy(wanted)))
    assert back == wanted
    values = [gate.equals for gate in back.gates if isinstance(gate, HttpJsonGate) and gate.equals]
    assert [type(one.value) for one in values] == [str, int, float, bool, type(None), str]
    assert through_text(codec.encode_policy(wanted))["gates"][0]["at"]["basic"] == "env:MQ_AUTH"


def test_a_run_that_began_with_gates_is_read_from_its_journal() -> None:
    wanted = Policy(kind=Kind.ELASTICSEARCH, cluster="prod", gates=GATES)
    started = RunStarted(
        cluster="prod", cluster_uuid="u", version="9.1.0", policy=wanted, nodes=(), operator="ann", host="h"
    )
    assert codec.decode_event(through_text(codec.encode_event(started))) == started


def test_a_gate_of_an_unknown_kind_is_damage() -> None:
    data = codec.encode_policy(Policy(kind=Kind.ELASTICSEARCH, cluster="prod"))
    with pytest.raises(JournalError, match="gates"):
        codec.decode_policy({**data, "gates": [{"gate": "oracle", "name": "x"}]})


def test_an_earlier_baseline_has_no_size_of_the_ring() -> None:
    written = codec.encode_event(BaselineRecorded(missing=(), incarnations={}, partitions=64))
    assert codec.decode_event(written) == BaselineRecorded(missing=(), incarnations={}, partitions=64)
    del written["partitions"]
    assert codec.decode_event(written) == BaselineRecorded(missing=(), incarnations={})


def test_a_policy_of_a_version_without_gates_has_none() -> None:
    data = dict(codec.encode_policy(Policy(kind=Kind.ELASTICSEARCH, cluster="prod")))
    del data["gates"]
    assert codec.decode_policy(data).gates == ()
