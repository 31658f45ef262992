"""Silences of Alertmanager, as leases: short, renewed while the nodes of a wave are down or recover.

Nothing has to be restored: a run that dies pages people when its last lease ends. `Waves` is a fold of the
run's public events: what should be silenced. `Silences` brings Alertmanager to that, from a thread.

A silence is found again by its comment and its matchers, so that none is made twice, even if the program was
killed between a request and its answer.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from orchestrator.around.story import PublicEvent, not_notified
from orchestrator.around.ways import RunContext
from orchestrator.around.web import NotSent, ask
from orchestrator.around.worker import Worker
from orchestrator.bounded_http import basic
from orchestrator.config.around import Alertmanager
from orchestrator.formats import stamp
from orchestrator.untrusted import one_line, plain_name

LEASE_SECONDS: Final = 900.0
RENEWED_BEFORE: Final = 600.0
"""A lease that ends within so many seconds is renewed."""
AFTER_RECOVERY: Final = 300.0
"""Alerts resolve a while after the copies are back."""
WAIT_SECONDS: Final = 2.0
"""The stop of a wave waits at most so long for its silence, once."""
REQUEST_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = 30.0
"""Between two tries of what failed."""
_SILENCES_BYTES: Final = 16 * 1024 * 1024
_NOT_FOUND: Final = 404
_LONGEST_ID: Final = 100
"""Characters; Alertmanager's ids have 36."""
_SAME_SECONDS: Final = 2.0
"""Two times of a silence that differ by less are the same."""

Matchers = tuple[tuple[str, str, bool], ...]
"""Label, value, and whether the value is a regular expression; in the order of the labels."""
Key = tuple[int, int]
"""Number of the wave and of the item of `matchers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SilencedWave:
    """A wave, as far as its alerts go."""

    number: int
    nodes: tuple[str, ...]  # those that have not failed
    since: float  # when it began; `of`: sequence of that event
    of: int
    recovered: float | None = None  # when its copies were back; None before
    gave_way: bool = False  # the next one may stop while it recovers
    whole: bool = True  # no node of it has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSilence:
    """A silence that should be there."""

    matchers: Matchers
    since: float  # when its wave began
    until: float  # this moment
    last: bool  # it is not renewed after that
    grace: bool  # the wave has recovered: none is made any more


class Waves:
    """What should be silenced: a fold.

    Args:
        sets: the items of `matchers`.
        at_most: longest time that a wave is silenced in all.
    """

    def __init__(self, sets: Sequence[Mapping[str, str]], at_most: float) -> None:
        self._sets, self._at_most = sets, at_most
        self.hosts: Mapping[str, str] = {}
        self.waves: dict[int, SilencedWave] = {}
        self.ended: dict[int, str] = {}
        self.deposed = False

    def see(self, seen: PublicEvent) -> None:
        """One more event."""
        line = seen.line
        match seen.event:
            case "run_started":
                self.hosts = line["addresses"]
            case "wave_started":
                wave = line["wave"]
                number, nodes = int(wave["number"]), tuple(wave["nodes"])
                known = self.waves.get(number)
                begun = SilencedWave(number=number, nodes=nodes, since=seen.at, of=int(line["sequence"]))
                self.waves[number] = replace(known, nodes=nodes, recovered=None) if known else begun
                self.ended.pop(number, None)
            case "wave_gave_way":
                self._change(int(line["number"]), gave_way=True)
            case "wave_finished":
                self._change(int(line["number"]), recovered=seen.at)
            case "phase_entered" if line.get("node") is None and line["to"] == "gated":
                self._end(
                    lambda wave: wave.recovered is None and not wave.gave_way, "the wave was called off"
                )
            case "phase_entered" if line["to"] == "failed":
                for wave in [wave for wave in self.waves.values() if line["node"] in wave.nodes]:
                    left = tuple(node for node in wave.nodes if node != line["node"])
                    self._change(wave.number, nodes=left, whole=False)
            case "run_resumed" | "restore_begun":
                self.deposed = False
            case "deposed":
                self.deposed = True
            case "run_finished":
                why = f"the run has ended ({line['outcome']}), and the wave has not recovered"
                self._end(lambda wave: wave.recovered is None, why)
            case _:
                pass

    def wanted(self, now: float) -> dict[Key, WantedSilence]:
        """What should be silenced now."""
        found: dict[Key, WantedSilence] = {}
        for wave in self.waves.values():
            limit = wave.since + self._at_most
            lease = now + LEASE_SECONDS if wave.recovered is None else wave.recovered + AFTER_RECOVERY
            until = min(lease, limit)
            if until <= now:
                continue
            for number, matchers in enumerate(self._sets):
                per_node = any(_PLACEHOLDER.search(value) for value in matchers.values())
                if wave.nodes if per_node else wave.whole:
                    filled = filled_in(matchers, wave.nodes, self.hosts)
                    grace = wave.recovered is not None
                    last = grace or until == limit
                    found[wave.number, number] = WantedSilence(
                        matchers=filled, since=wave.since, until=until, last=last, grace=grace
                    )
        return found

    def why_not(self, number: int) -> str:
        """Why a wave is not silenced any more."""
        wave = self.waves.get(number)
        if wave is None or number in self.ended:
            return self.ended.get(number, "the wave is over")
        if wave.recovered is not None:
            return "the wave has recovered"
        return "a node failed" if not wave.whole else "it has lasted as long as `at_most` allows"

    def _change(self, number: int, **changes: Any) -> None:
        if number in self.waves:
            self.waves[number] = replace(self.waves[number], **changes)

    def _end(self, which: Callable[[SilencedWave], bool], why: str) -> None:
        for wave in [wave for wave in self.waves.values() if which(wave)]:
            self.ended[wave.number] = why
            del self.waves[wave.number]


_PLACEHOLDER: Final = re.compile(r"\{(host|node)\}")


def filled_in(matchers: Mapping[str, str], nodes: Sequence[str], hosts: Mapping[str, str]) -> Matchers:
    """The matchers of a wave: one regular expression for its nodes where a placeholder stands."""

    def one(value: str, node: str) -> str:
        words = {"host": hosts.get(node) or node, "node": node}
        parts = _PLACEHOLDER.split(value)  # text, name, text, name, text
        return "".join(re.escape(words[part] if place % 2 else part) for place, part in enumerate(parts))

    return tuple(
        (label, "|".join(one(value, node) for node in nodes), True)
        if _PLACEHOLDER.search(value)
        else (label, value, False)
        for label, value in sorted(matchers.items())
    )


def in_words(matchers: Matchers) -> str:
    """For events."""
    return ", ".join(f"{label} {'matches' if regex else 'is'} {value}" for label, value, regex in matchers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A silence that is there."""

    id: str
    until: float
    matchers: Matchers
    ending: bool = False  # it is not renewed any more


class Silences(Worker):
    """Keeps the silences of a run. Only `wait` and `join` wait.

    Args:
        alertmanager: where.
        context: secrets, redaction, and the run.
        record: takes events for the journal.
        past: public events of earlier attempts.
        now: wall clock, in seconds since the epoch; `clock`: monotonic.
    """

    def __init__(
        self,
        alertmanager: Alertmanager,
        context: RunContext,
        record: Callable[[Mapping[str, object]], None],
        past: Sequence[PublicEvent],
        *,
        now: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("silences", clock)
        self._at, self._context, self._record, self._now = alertmanager, context, record, now
        self._waves = Waves(alertmanager.matchers, alertmanager.at_most)
        for seen in past:
            self._waves.see(seen)
        self._live: dict[Key, Live] = {}
        self._by_hand: set[Key] = set()  # a person has ended it, who wants the alerts
        self._to_find = bool(past)
        self._failed: set[str] = set()
        self._tried: dict[Key, Matchers] = {}
        self._not_before = 0.0
        self._waited: set[int] = set()
        self._seen = self._done = 0  # versions of the events: the last one, and that which was acted on

    def see(self, batch: Sequence[PublicEvent]) -> None:
        """These events were committed together."""
        with self._changed:
            for seen in batch:
                self._waves.see(seen)
            self._seen += 1
            self._changed.notify_all()
        if self._waves.waves or self._to_find:
            self._begin()

    def wait(self) -> None:
        """Before the stop of a wave: wait a little for its silence, once for each wave."""
        with self._changed:
            new = {
                number for number, wave in self._waves.waves.items() if wave.recovered is None
            } - self._waited
            if new and self._thread is not None:
                version = self._seen
                self._changed.wait_for(lambda: self._done >= version, timeout=WAIT_SECONDS)
            self._waited |= new

    def _late(self) -> None:
        self._fault("it did not answer before the end of the run")

    def _work(self) -> None:
        pause: float | None = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._seen > self._done or self._until is not None, timeout=pause
                )
                version, closing = self._seen, self._until is not None
                wanted, deposed = self._waves.wanted(self._now()), self._waves.deposed
            try:
                pause = None if deposed else self._reconcile(wanted)
            except Exception as defect:  # noqa: BLE001  (a silence must not end a run)
                self._fault(f"a defect of the program: {type(defect).__name__}")
                pause = AGAIN_SECONDS
            with self._changed:
                self._done = version
                self._changed.notify_all()
                if closing:
                    return

    def _reconcile(self, wanted: Mapping[Key, WantedSilence]) -> float | None:
        """Make, renew and end silences; seconds until something has to be done again."""
        now = self._now()
        tried, self._tried = self._tried, {key: want.matchers for key, want in wanted.items()}
        if now < self._not_before and self._until is None and tried == self._tried:
            return self._not_before - now
        if self._to_find and not self._try(partial(self._find, wanted)):
            return self._later()
        todo = {key: want for key, want in wanted.items() if key not in self._by_hand}
        for key, live in [*self._live.items()]:
            want = todo.get(key)
            if (want is None or want.matchers != live.matchers) and not self._try(
                partial(self._expire, key, live)
            ):
                todo.pop(key, None)  # first the old one has to end
        for key, want in todo.items():
            held = self._live.get(key)
            if held is None and not want.grace:
                self._try(partial(self._make, key, want))
            elif held is not None and not held.ending and (want.last or held.until - now < RENEWED_BEFORE):
                self._try(partial(self._renew, key, want, held))
        if self._to_find:
            return self._later()
        self._failed.clear()
        ends = [live.until - (0.0 if live.ending else RENEWED_BEFORE) for live in self._live.values()]
        return max(1.0, min(ends) - now) if ends else None

    def _later(self) -> float:
        self._not_before = self._now() + AGAIN_SECONDS
        return AGAIN_SECONDS

    def _find(self, wanted: Mapping[Key, WantedSilence]) -> None:
        """Find the silences of this run: another process made them, or an answer was lost."""
        of_run = re.compile(re.escape(f"orchestrate {self._context.run} wave ") + r"(\d+)$")
        known = {live.id for live in self._live.values()}
        keys = {(key[0], want.matchers): key for key, want in wanted.items()}
        for one in self._listed():
            number = of_run.match(str(one["comment"]))
            if number is None or one["id"] in known:
                continue
            silence = self._id(one["id"])
            matchers = _matchers_of(one)
            key = keys.get((int(number[1]), matchers))
            if one["status"]["state"] == "expired":
                over = _at(one["endsAt"])
                at_once = over == _at(one["updatedAt"])  # one that expires was last changed a lease before
                if at_once and key is not None and key not in self._live and over >= wanted[key].since:
                    self._by_hand.add(key)
                continue
            if key is not None and key not in self._live:
                self._live[key] = Live(id=silence, until=_at(one["endsAt"]), matchers=matchers)
                continue
            self._delete(silence)
            why = self._why(int(number[1])) if key is None else "there is another one"
            self._ended(int(number[1]), silence, self._now(), why)
        self._to_find = False

    def _make(self, key: Key, want: WantedSilence) -> None:
        # It starts at once: Alertmanager takes no start in the past. Its clock may be behind this one.
        made = self._put({"startsAt": stamp(self._now() - LEASE_SECONDS)}, key, want)
        words = in_words(want.matchers)
        self._live[key] = Live(id=made, until=want.until, matchers=want.matchers, ending=want.last)
        about = {"wave": key[0], "silence": made, "until": want.until}
        self._record({"event": "silence_created", **about, "matchers": words})

    def _renew(self, key: Key, want: WantedSilence, live: Live) -> None:
        """Prolong it, or let it end a while after recovery. An expired one is replaced.

        A renewal repeats the start that the server has: with another one it would make another silence.
        """
        there = self._read(live.id)
        if there is None or there["status"]["state"] == "expired":
            early = there is not None and _at(there["endsAt"]) < live.until - _SAME_SECONDS
            why = "it was ended in Alertmanager" if early else "it was not renewed in time"
            if there is None:
                why = "Alertmanager does not have it any more"
            self._ended(key[0], live.id, min(live.until, self._now()), why)
            del self._live[key]
            if early:
                self._by_hand.add(key)
            elif not want.grace:
                self._make(key, want)
            return
        made = self._put({"id": live.id, "startsAt": str(there["startsAt"])}, key, want)
        self._live[key] = replace(live, id=made, until=want.until, ending=want.last)
        if want.last:
            self._ended(key[0], made, want.until, self._why(key[0]))
        else:
            self._record({"event": "silence_renewed", "wave": key[0], "silence": made, "until": want.until})

    def _expire(self, key: Key, live: Live) -> None:
        now = self._now()
        if live.until > now:
            self._delete(live.id)
        del self._live[key]
        if not live.ending:
            self._ended(key[0], live.id, min(now, live.until), self._why(key[0]))

    def _why(self, wave: int) -> str:
        with self._changed:
            return self._waves.why_not(wave)

    def _ended(self, wave: int, silence: str, until: float, why: str) -> None:
        self._record({"event": "silence_ended", "wave": wave, "silence": silence, "until": until, "why": why})

    # Alertmanager ------------------------------------

    def _comment(self, wave: int) -> str:
        return f"orchestrate {self._context.run} wave {wave}"

    def _listed(self) -> list[Mapping[str, Any]]:
        found = json.loads(self._ask("GET", "silences"))
        if not isinstance(found, list):
            raise NotSent("the answer is no list of silences")
        return sorted(found, key=lambda one: (one["status"]["state"] == "expired", str(one["startsAt"])))

    def _read(self, silence: str) -> Mapping[str, Any] | None:
        """One of them; None if it is not known any more."""
        try:
            found: Mapping[str, Any] = json.loads(self._ask("GET", f"silence/{quote(silence, safe='')}"))
        except NotSent as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return found

    def _put(self, which: Mapping[str, str], key: Key, want: WantedSilence) -> str:
        silence = {
            **which,
            "matchers": [
                {"name": label, "value": value, "isRegex": regex, "isEqual": True}
                for label, value, regex in want.matchers
            ],
            "endsAt": stamp(want.until),
            "createdBy": "orchestrate",
            "comment": self._comment(key[0]),
        }
        return self._id(json.loads(self._ask("POST", "silences", silence))["silenceID"])

    def _id(self, said: object) -> str:
        """The id of a silence, which is recorded and asked for again. Raises `ValueError` if it is none."""
        found = plain_name(said if isinstance(said, str) else "")
        if len(found) > _LONGEST_ID or self._context.redact(found) != found:
            raise ValueError("no id of a silence")
        return found

    def _delete(self, silence: str) -> None:
        try:
            self._ask("DELETE", f"silence/{quote(silence, safe='')}")
        except NotSent as error:
            # Alertmanager answers 500, too, where it does not know the silence any more.
            there = None if error.status == _NOT_FOUND else self._read(silence)
            if there is not None and there["status"]["state"] != "expired":
                raise

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        return call(self._at, self._context, method, path, body, seconds=self._left(REQUEST_SECONDS))

    def _try(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except NotSent as error:
            self._fault(str(error))
            return False
        except (KeyError, TypeError, ValueError) as error:
            self._fault(f"the answer is not Alertmanager's ({type(error).__name__})")
            return False
        return True

    def _fault(self, why: str) -> None:
        """Record a failure, once until all is good again. What was asked may have been done all the same."""
        self._to_find = True
        why = one_line(self._context.redact(why))
        if why not in self._failed:
            self._failed.add(why)
            with self._changed:
                of = max((wave.of for wave in self._waves.waves.values()), default=0)
            self._record({**not_notified(why), "target": self._at.name, "on": "silence", "of": of})


def call(
    at: Alertmanager,
    context: RunContext,
    method: str,
    path: str,
    body: object = None,
    *,
    seconds: float = REQUEST_SECONDS,
) -> bytes:
    """One request to the API. Raises `NotSent`."""
    headers = {}
    if at.auth is not None:
        login = context.secret(at.auth)
        context.learn(login.partition(":")[2])
        headers["Authorization"] = basic(login)
    elif at.bearer is not None:
        headers["Authorization"] = f"Bearer {context.secret(at.bearer)}"
    return ask(
        method,
        f"{at.url}/api/v2/{path}",
        headers=headers,
        body=body,
        trust=at,
        seconds=seconds,
        answer_bytes=_SILENCES_BYTES,
    )


def _matchers_of(silence: Mapping[str, Any]) -> Matchers:
    found = [
        (str(one["name"]), str(one["value"]), bool(one["isRegex"]))
        for one in silence["matchers"]
        if one.get("isEqual", True)
    ]
    return tuple(sorted(found))


def _at(text: object) -> float:
    return datetime.fromisoformat(str(text)).timestamp()
