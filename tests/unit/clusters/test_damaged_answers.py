"""Recorded answers with anything in them lost, moved or replaced: no exception, and no good news from bad.

What no reader of one text can see is a forgery: a text from which exactly the lines with the bad news
are gone, several of them apart from each other, is the clean text itself. So the damage of a text is what
happens: one end or one piece is lost, lines change places, a line is wrapped, a line comes twice.

`make check` draws from the damage of each answer, `make test-long` does all of it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product
from random import Random
from typing import Any

import pytest

from orchestrator.model.reading import Unknown
from orchestrator.model.riak import (
    Availability,
    ClusterStatus,
    Membership,
    RingReady,
    ServiceWait,
    TransferLimits,
    Transfers,
)
from orchestrator.riak.output import CommandOutput, dialect_of, reading
from orchestrator.riak.parse_handoff import parse_timer, parse_transfers
from orchestrator.riak.parse_node import parse_stats
from orchestrator.riak.parse_ring import parse_cluster_status, parse_partitions, parse_ringready
from tests.fakes.riak_meanings import DIALECT, parser_of
from tests.riak_transcripts import Recording, recorded
from tests.unit.clusters.cases import ABSENT, all_cases, damaged, why
from tests.unit.clusters.recordings import NEW, READ, Moment, body


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.part(name="long"))], ids=["drawn", "all"])
def every(request: pytest.FixtureRequest) -> bool:
    """Whether all damage is done, or some of it."""
    return bool(request.param)


# JSON of Elasticsearch -------------------------------------------------------------------------------------

RECORDED = (
    *("recovering.state", "busy.state", "settled.settings", "recovering.health", "recovering.recoveries"),
    *("busy.tasks", "busy.snapshots", "empty.disks", "loaded.indices", "merging.merges", "names"),
)
INSTEAD = (ABSENT, None, 7, "?", [], {}, [None], {"x": None}, -3, "9" * 5000)
Place = tuple[str | int, ...]


def places(value: Any, way: Place = ()) -> Iterator[Place]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*way, key)
        yield from places(below, (*way, key))


def kinds(found: Iterable[Place]) -> list[Place]:
    """One place of those whose last three steps are alike."""
    each = {tuple("*" if isinstance(step, int) else step for step in place[-3:]): place for place in found}
    return list(each.values())


def test_no_damage_of_a_recorded_answer_raises(subtests: pytest.Subtests, *, every: bool) -> None:
    for version, name in product(NEW if every else ["9.1.0"], RECORDED):
        moment, _, kind = name.rpartition(".")
        read = partial(READ[kind], Moment(version, moment))
        if version == "7.17.28" and kind in {"indices", "merges", "names"}:
            continue  # not recorded of it
        whole = body(version, name)
        with subtests.test(version, name=name):
            assert "UNKNOWN" not in "".join(read(whole))
            found = list(places(whole)) if every else kinds(places(whole))
            for place, by in product(found, INSTEAD):
                list(read(damaged(whole, place, by)))
            for instead in (None, 7, "text", [], [[]]):
                assert "UNKNOWN" in "".join(read(instead)), instead


INDEX = ("metadata", "indices", "posts")
NEEDED: tuple[Place, ...] = (
    *((part,) for part in ("cluster_name", "cluster_uuid", "version", "nodes", "metadata", "routing_table")),
    ("routing_table", "indices", "posts"),
    ("metadata", "indices"),
    INDEX,
    (*INDEX, "settings"),
    (*INDEX, "state"),
    (*INDEX, "in_sync_allocations"),
    (*INDEX, "settings", "index", "number_of_replicas"),
    ("metadata", "cluster_coordination", "last_committed_config"),
    ("metadata", "cluster_coordination", "voting_config_exclusions"),
)


def test_a_part_of_the_state_that_is_gone_is_unknown(subtests: pytest.Subtests) -> None:
    for moment, place in product((Moment("9.1.0", "recovering"), Moment("9.1.0", "settled")), NEEDED):
        with subtests.test(moment.name, place=place):
            whole, lives = moment.body("state"), moment.lives()
            gone = why(moment.parsed(damaged(whole, place), lives))
            assert gone.startswith("cluster state: the answer is not what it should be: ")
            if len(place) == 1 and place != ("routing_table",):
                for by in (None, {}):
                    assert isinstance(moment.parsed(damaged(whole, place, by), lives), Unknown)


# Texts of Riak ---------------------------------------------------------------------------------------------


def good(command: str, value: Any) -> bool:
    """Whether it could be taken for leave to go on."""
    match value:
        case Unknown():
            return False
        case RingReady(agreed=agreed):
            return agreed
        case ClusterStatus(ring_ready=ready, members=members):
            return ready is True and all(
                each.availability is Availability.UP
                and each.membership is Membership.VALID
                and each.pending_share is None
                for each in members
            )
        case Transfers():
            return value.clean
        case ServiceWait(up=up):
            return up
        case bool():
            return value and command == "riak ping"
    return False


JUDGED = (
    "riak ping",
    "riak admin ringready",
    "riak admin cluster status",
    "riak admin transfers",
    "riak admin wait-for-service riak_kv",
)
"""Commands whose reading can be good or bad news."""


@cache
def judged() -> tuple[Recording, ...]:
    """Each different text once."""
    found = (each for each in recorded() if each.command.startswith(JUDGED))
    return tuple({(each.command, each.exit, each.text): each for each in found}.values())


def read(record: Recording, text: str) -> Any:
    parse = parser_of(record.command)
    assert parse is not None
    return reading(lambda: parse(replace(record, text=text).output))


def is_good(record: Recording, text: str) -> bool:
    return good(record.command, read(record, text))


BAD = tuple(each for each in judged() if not is_good(each, each.text))
GOOD = tuple(each for each in judged() if is_good(each, each.text))
SHAPES = tuple({re.sub(r"\d+", "0", f"{each.command} {each.text}"): each for each in BAD}.values())
"""One of those that differ in their numbers alone."""


def damage(text: str) -> Iterator[str]:
    """Each end lost, each run of lines lost, a line twice, two lines changed, the text wrapped anywhere."""
    lines = text.splitlines(keepends=True)
    yield from (text[:end] for end in range(len(text)))
    for start in range(len(lines)):
        yield "".join(lines[: start + 1] + lines[start:])
        yield "".join([*lines[:start], *reversed(lines[start : start + 2]), *lines[start + 2 :]])
        yield from ("".join(lines[:start] + lines[end:]) for end in range(start + 1, len(lines) + 1))
    yield from wrapped(text)


def wrapped(text: str) -> Iterator[str]:
    for at, indent in product(range(len(text) + 1), (0, 1, 34)):
        yield f"{text[:at]}\n{' ' * indent}{text[at:]}"


def several(text: str, random: Random) -> str:
    """Up to three pieces are damaged, each by a gap of any characters or by one of `damage`."""
    for _ in range(random.randint(1, 3)):
        start = random.randint(0, len(text))
        gap = text[:start] + text[random.randint(start, len(text)) :]
        lines = text.splitlines(keepends=True)[:12]
        shuffled = "".join(random.sample(lines, len(lines)))
        at = random.randint(0, len(text))
        text = random.choice(
            (gap, shuffled, f"{text[:at]}\n{text[at:]}", f"{text}{lines[-1] if lines else ''}")
        )
    return text


def drawn(texts: Iterator[str], random: Random, count: int | None) -> Iterable[str]:
    """So many of them; None: all."""
    every = list(texts)
    return every if count is None or count >= len(every) else random.sample(every, count)


def test_there_are_both_kinds() -> None:
    assert (len(BAD), len(GOOD)) == (87, 12)
    assert {each.command for each in BAD if each.exit == 0} > {"riak admin ringready", "riak admin transfers"}


def test_damaged_bad_news_is_no_good_news(subtests: pytest.Subtests, *, every: bool) -> None:
    random = Random(1)  # noqa: S311  (a sample that is the same each time)
    for record in BAD if every else SHAPES:
        with subtests.test(str(record)):
            texts = [*drawn(damage(record.text), random, None if every else 30)]
            texts += [several(record.text, random) for _ in range(200 if every else 30)]
            assert [text for text in texts if is_good(record, text)] == []
            assert not is_good(replace(record, exit=None), record.text)


def test_a_wrapped_text_reads_as_the_same_or_unknown(subtests: pytest.Subtests, *, every: bool) -> None:
    random = Random(2)  # noqa: S311  (a sample that is the same each time)
    for record in judged():
        with subtests.test(str(record)):
            whole = read(record, record.text)
            for text in drawn(wrapped(record.text), random, None if every else 10):
                found = read(record, text)
                assert isinstance(found, Unknown) or found == whole, text


LOGIN = "Last login: Sun Nov 22 20:35:32 2026 from 10.0.0.9\n"
FRENCH = "Le nœud ne répond pas aux requêtes\n"
SPOILT: Mapping[str, Callable[[str], str]] = {
    "empty": lambda _: "",
    "the return term alone": lambda _: "ok\n",
    "blank lines": lambda _: "\n \n\t\n",
    "a login before it": lambda text: LOGIN + text,
    "a login behind it": lambda text: text + LOGIN,
    "coloured": lambda text: "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines()),
    "a colour behind it": lambda text: f"{text}\x1b[0m",
    "line ends of Windows": lambda text: text.replace("\n", "\r\n"),
    "a mark of byte order": lambda text: f"\ufeff{text}",
    "zero bytes": lambda text: text.replace(" ", "\0"),
    "in another language": lambda _: FRENCH,
    "half": lambda text: text[: len(text) // 2],
    "without its last line": lambda text: "".join(text.splitlines(keepends=True)[:-1]),
    "twice": lambda text: text * 2,
    "a page of a proxy": lambda _: "<html><body>502 Bad Gateway</body></html>\n",
    "nothing of Erlang's": lambda _: "undefined\n",
    "shouted": str.upper,
    "the news of another command": lambda text: (
        "TRUE All nodes agree on the ring ['dev1@127.0.0.1']\nok\n"
        if "Transfers" in text
        else "No transfers active\n\nActive Transfers:\n\n\nok\n"
    ),
}


def test_what_is_spoilt_on_its_way_is_no_other_news(subtests: pytest.Subtests) -> None:
    """Of every command that is read but two: half a number is a number, and `stop` may print nothing."""
    read_ones = {(each.command, each.text): each for each in recorded() if parser_of(each.command)}
    for record, (name, spoil) in product(read_ones.values(), SPOILT.items()):
        if record.command not in ("riak pid", "riak stop"):
            with subtests.test(str(record), name=name):
                whole, found = read(record, record.text), read(record, spoil(record.text))
                not_yet = isinstance(found, ServiceWait) and not found.up
                assert isinstance(found, Unknown) or found == whole or not_yet


def test_good_news_that_is_cut_or_denied_is_unknown(subtests: pytest.Subtests) -> None:
    """By its exit code, its return term, or a line that the node is down."""
    for record in GOOD:
        text = record.text
        with subtests.test(str(record)):
            whole = read(record, text)
            cuts = {end: read(record, text[:end]) for end in range(len(text))}
            assert cuts.pop(len(text) - 1) == whole, "nothing but a line end is lost"
            assert [end for end, value in cuts.items() if not isinstance(value, Unknown)] == []
            for code in (None, 1):
                assert not is_good(replace(record, exit=code), text)
            if record.command.startswith("riak admin wait"):
                continue  # that the node is down is printed while it is not up yet
            said = "Node dev1@127.0.0.1 is not responding to pings\n"
            assert not is_good(record, said + text)
            assert not is_good(record, text + said)
            for term in ("error", "{error,1}") if record.command.startswith("riak admin") else ():
                assert not is_good(record, text.replace("\nok\n", f"\n{term}\n"))
                assert not is_good(record, f"{term}\n{text}")


def test_transfer_limits_that_lack_lines_are_fewer_and_the_same() -> None:
    """Nothing says how many there should be, so each node's limit is read as that node's alone."""
    (record,) = (
        each for each in recorded() if each.state == "dev2down" and each.command.endswith("transfer-limit")
    )
    whole = read(record, record.text)
    assert whole.limits == {"dev1@127.0.0.1": 3, "dev3@127.0.0.1": 2}
    lines = record.text.splitlines(keepends=True)
    pieces = ("".join(lines[:a] + lines[b:]) for a in range(len(lines)) for b in range(a + 1, len(lines) + 1))
    for text in (*pieces, *(record.text[:end] for end in range(len(record.text) - 1))):
        found = read(record, text)
        if isinstance(found, TransferLimits):
            assert found.limits.items() <= whole.limits.items()
            assert set(found.offline) <= set(whole.offline)


PARSERS = {
    "riak admin cluster status": parse_cluster_status,
    "riak admin transfers": parse_transfers,
}


def test_before_the_return_term_the_last_line_shows_a_cut(subtests: pytest.Subtests, *, every: bool) -> None:
    """Before 3.2 there is no return term: the last line of each form shows whether it is whole."""
    step = 1 if every else 61
    records = [
        each for each in judged() if each.exit == 0 and each.command in PARSERS and "\nok\n" in each.text
    ]
    for record, version in product(records, ["2.9.10", "3.0.16"]):
        with subtests.test(str(record), version=version):
            dialect = dialect_of(version)
            assert dialect is not None
            whole = record.text.removesuffix("ok\n").removesuffix("error\n")
            kept = 0 if "Nodes [" in whole or "unreachable: [" in whole else len(whole.rstrip())
            ends = sorted({*range(0, kept, step), *range(max(0, kept - 40), len(whole)), len(whole)})
            news = {}
            for end in ends:
                output = CommandOutput(exit=0, stdout=whole[:end])
                value = reading(partial(PARSERS[record.command], output, dialect))
                news[end] = good(record.command, value)
            assert value == read(record, record.text)
            assert not any(news[end] for end in ends if end < kept)
            assert news[len(whole)] or not any(news.values())


# Every parser ----------------------------------------------------------------------------------------------


def test_no_damage_of_a_case_raises(subtests: pytest.Subtests) -> None:
    """Of every answer in `tests/data/parsers/` that has a value, whatever kind of answer it is."""
    random = Random(3)  # noqa: S311  (a sample that is the same each time)
    for case in all_cases():
        if "value" not in case.keys or not isinstance(case.answer, str | dict | list):
            continue
        with subtests.test(case.parser, name=case.name):
            if case.is_text:
                for text in drawn(damage(case.text), random, 8):
                    replace(case, answer=text).read()
            elif case.is_json:
                for place, by in product(kinds(places(case.answer))[:20], INSTEAD):
                    replace(case, answer=damaged(case.answer, place, by)).read()


# Too much --------------------------------------------------------------------------------------------------

MANY = 10**5
DIGITS = "1" * 5000
"""More than Python turns into a number."""
BORDER = f"+{'-' * 20_000}+------+-------+-----+-------+"
STATUS = (
    f"---- Cluster Status ----\nRing ready: true\n{BORDER}\n"
    f"|{'node'.ljust(20_000)}|status| avail |ring |pending|\n{BORDER}\n"
    f"|{' ' * 20_000}|valid |  up   |100.0|  --   |\n{BORDER}"
    "\nKey: (C) = Claimant; availability marked with '!' is unexpected\nok\n"
)
AGREED = f"TRUE All nodes agree on the ring [{chr(10).join(['x@y,'] * MANY)}"
WAITING = f"'a@b' waiting to handoff {DIGITS} partitions\n\nActive Transfers:\n\n\nok\n"
LONG: Mapping[str, tuple[Callable[..., Any], str]] = {
    "a list of a hundred thousand lines": (parse_ringready, AGREED),
    "a bracket that is never closed": (parse_ringready, "[\n" + "a,\n" * MANY + "ok\n"),
    "a cell of nothing but blanks": (parse_cluster_status, STATUS),
    "a heading that goes on and on": (parse_partitions, f"Partitions owned by {'= ' * MANY}:\nok\n"),
    "a number of five thousand digits": (parse_transfers, WAITING),
    "another one": (parse_stats, f'{{"ring_num_partitions": {DIGITS}}}'),
    "a text where a number should be": (parse_stats, json.dumps({"ring_num_partitions": "x" * 3_000_000})),
    "brackets in brackets": (parse_timer, "[" * MANY),
}


def test_too_much_is_unknown_soon_and_in_few_words(subtests: pytest.Subtests) -> None:
    for what, (parse, text) in LONG.items():
        with subtests.test(what):
            began = time.process_time()
            output = CommandOutput(exit=0, stdout=text)
            given = (
                (text,) if parse is parse_stats else (output,) if parse is parse_timer else (output, DIALECT)
            )
            found = reading(partial(parse, *given))
            assert isinstance(found, Unknown)
            assert len(found.reason) < 1000
            assert time.process_time() - began < 20, "where it took time by the square, it took minutes"
