"""Annotations in Grafana: a region for the run and one for each wave, from its begin to its end.

`Annotations.of` is a fold of the run's public events; `send` brings one region to Grafana, from the thread of
an outbox. Its id is in the journal, so that `resume` ends the same one. Where an answer was lost, it is found
by its tags and its begin.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Final
from urllib.parse import urlencode

from orchestrator.around.story import Message, PublicEvent
from orchestrator.around.ways import RunContext
from orchestrator.around.web import NotSent, ask
from orchestrator.config.around import Grafana
from orchestrator.untrusted import one_line

ANNOTATION: Final = "annotation"
"""What `notified` and `not_notified` of an annotation are `on`."""
MOST_IN_A_WHILE: Final = 200
"""Two of each wave, and waves may be short."""
_LONGEST_TAG: Final = 90
"""Grafana keeps 100 characters of a name or value in a tag."""
_ANSWER_BYTES: Final = 1024 * 1024
"""100 annotations at most are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The time of a run or of a wave."""

    wave: int | None  # its number; None for the run
    begin: int  # in milliseconds since the epoch, `end` likewise; None while it lasts
    said: tuple[str, ...]  # sentences about it
    end: int | None = None
    gave_way: bool = False  # the next wave may stop while it recovers


class Annotations:
    """The annotations of a run.

    Args:
        grafana: where.
        context: secrets, redaction, and the run.
        past: public events of earlier attempts.
    """

    def __init__(self, grafana: Grafana, context: RunContext, past: Sequence[PublicEvent]) -> None:
        self._at, self._context = grafana, context
        self._regions: dict[int, Region] = {}  # by the sequence of the event that began it
        self.of(past)
        made = [seen.line for seen in past if seen.event == "notified" and seen.line["on"] == ANNOTATION]
        self._ids = {int(line["of"]): str(line["reference"]) for line in made}
        self._doubtful = self._regions.keys() - self._ids.keys()

    def of(self, batch: Sequence[PublicEvent]) -> list[Message]:
        """A message for each region that these events begin or end."""
        return [
            Message(on=ANNOTATION, of=of, text="", line=seen.line) for seen in batch for of in self._see(seen)
        ]

    def due(self, _now: float) -> list[Message]:
        """None: time alone changes no region."""
        return []

    def end(self, _text: str) -> list[Message]:
        """None: the event of the end has ended all regions."""
        return []

    def _see(self, seen: PublicEvent) -> Iterator[int]:
        line = seen.line
        match seen.event:
            case "run_started" | "run_resumed" | "restore_begun":
                yield self._begun(seen, None)
            case "wave_started":
                yield self._begun(seen, int(line["wave"]["number"]))
            case "wave_gave_way":
                for of in self._open(int(line["number"])):
                    self._regions[of] = replace(self._regions[of], gave_way=True)
            case "wave_finished":
                yield from self._ended(seen, self._open(int(line["number"])))
            case "phase_entered" if line.get("node") is None and line["to"] == "gated":
                yield from self._ended(seen, [of for of in self._open() if not self._regions[of].gave_way])
            case "run_finished":
                runs = [of for of, region in self._regions.items() if region.wave is None]
                yield from self._ended(seen, [*self._open(), *runs])
            case _:
                pass

    def _begun(self, seen: PublicEvent, wave: int | None) -> int:
        """A region begins, or another attempt at the run continues it."""
        for of, region in self._regions.items():
            if region.wave == wave and (wave is None or region.end is None):
                return of
        of = int(seen.line["sequence"])
        self._regions[of] = Region(wave=wave, begin=round(1000 * seen.at), said=(seen.text,))
        return of

    def _open(self, wave: int | None = None) -> list[int]:
        """The waves that have not ended: all, or that one."""
        found = self._regions.items()
        return [of for of, one in found if one.wave is not None and not one.end and wave in (None, one.wave)]

    def _ended(self, seen: PublicEvent, which: Sequence[int]) -> Sequence[int]:
        for of in which:
            region = self._regions[of]
            self._regions[of] = replace(region, end=round(1000 * seen.at), said=(region.said[0], seen.text))
        return which

    # Grafana -----------------------------------------

    def send(self, message: Message, seconds: float) -> str:
        """Bring the region of a message to Grafana; its id there. Raises `NotSent`."""
        until, of, region = time.monotonic() + seconds, message.of, self._regions[message.of]
        token = self._context.secret(self._at.token)  # first: from here on it is redacted

        def ask_for(method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
            left = max(0.1, until - time.monotonic())
            return call(self._at, token, method, path, body, seconds=left)

        try:
            found = self._ids.get(of) or (self._find(region, ask_for) if of in self._doubtful else None)
            if found is None:
                self._doubtful.add(of)
                made = ask_for("POST", "", {**self._body(region), "tags": self._tags(region)})
                found = str(int(made["id"]))
            else:
                ask_for("PATCH", f"/{found}", self._body(region))
        except (KeyError, TypeError, ValueError) as error:
            raise NotSent(f"the answer is not Grafana's ({type(error).__name__})") from None
        self._ids[of] = found
        return found

    def _find(self, region: Region, ask_for: Callable[[str, str], Any]) -> str | None:
        query = [("type", "annotation"), *(("tags", tag) for tag in self._tags(region))]
        listed = ask_for("GET", f"?{urlencode(query)}")
        return next((str(int(one["id"])) for one in listed if one["time"] == region.begin), None)

    def _tags(self, region: Region) -> list[str]:
        about = {"cluster": self._context.cluster, "run": self._context.run}
        named = about if region.wave is None else {**about, "wave": str(region.wave)}
        tags = [f"{name}:{self._context.redact(value)}" for name, value in named.items()]
        return ["orchestrate", *(one_line(tag, _LONGEST_TAG) for tag in tags)]

    def _body(self, region: Region) -> dict[str, object]:
        said = "<br>".join(escape(one_line(self._context.redact(text))) for text in region.said)
        end = {} if region.end is None else {"timeEnd": region.end}
        return {"text": said, "time": region.begin, **end}


def call(at: Grafana, token: str, method: str, path: str, body: object = None, *, seconds: float) -> Any:
    """The answer of the API of annotations. Raises `NotSent`, or `ValueError` if it is no JSON."""
    answer = ask(
        method,
        f"{at.url}/api/annotations{path}",
        headers={"Authorization": f"Bearer {token}"},
        body=body,
        trust=at,
        seconds=seconds,
        answer_bytes=_ANSWER_BYTES,
    )
    return json.loads(answer)
