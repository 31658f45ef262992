"""What surrounds a run: messages and hooks of a run, silences, metrics. They never change what a run does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema, model_validator

from orchestrator.config.gates import (
    LONGEST_VALUE,
    SECRET_WORDS,
    BaseUrl,
    GateName,
    absolute,
    at_home,
    free_name,
)
from orchestrator.config.reaching import LoginSpec, TrustSpec
from orchestrator.config.secrets import FORMS, Scheme, SecretReference, parse_reference
from orchestrator.config.spec import (
    NO_PLACEHOLDER,
    NOT_EMPTY,
    CommandLine,
    Duration,
    Name,
    Reference,
    Spec,
    Unset,
)
from orchestrator.config.yaml import Text

MOST_TARGETS: Final = 10
"""Each has a thread of its own during a run."""
MOST_SILENCES: Final = 20
"""For each wave: they are made one after the other."""
LONGEST_HOOK_SECONDS: Final = 60.0
WEB: Final = ("http", "https")
MAIL: Final = ("smtp", "smtps")

_BARE: Final = r"[!#-'*+\-./0-9=?A-Z^_`a-z{|}~]+(?:@[A-Za-z0-9.\[\]:-]+)?"
_ADDRESS: Final = re.compile(rf"{_BARE}|[^<>@,;:\"\\]*<{_BARE}>")
"""Of mail, perhaps with a name before it. One without a host is an account of the mail server."""
PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")
"""In a template. A brace beside one is text: a template may be JSON."""


class On(StrEnum):
    """What a message is about."""

    STARTED = "started"
    HELD = "held"
    CLEARED = "cleared"
    GATE_CLOSED = "gate_closed"
    FAILED = "failed"
    STOOD_DOWN = "stood_down"
    PAUSED = "paused"
    DONE = "done"


def scheme_of(url: str) -> str:
    """The scheme of a URL, in small letters; empty if it has none."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url)
    return found[1].lower() if found else ""


def check_target(url: str) -> str:
    """Check the URL of a message's target, wherever it comes from.

    Raises:
        ValueError: nothing can be sent there; the message does not repeat the URL, which may hold a secret.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a URL such as https://chat.example.org/hook") from None
    if not scheme_of(url) or not url.isprintable() or " " in url:
        raise ValueError("must be a URL such as https://chat.example.org/hook")
    if scheme_of(url) in (*WEB, *MAIL) and (not host or port == 0 or parts.fragment):
        raise ValueError("must be a URL with a host, such as https://chat.example.org/hook")
    if scheme_of(url) in MAIL:
        sender_and_receivers(url)
    return url


def sender_and_receivers(url: str) -> tuple[str, tuple[str, ...]]:
    """The addresses in the URL of a mail server, which become headers.

    Raises:
        ValueError: one is missing, or is no address: with a line break it would be a header more.
    """
    named = parse_qs(urlsplit(url).query.replace("+", "%2B"))  # ops+night@example.org is an address
    senders, receivers = named.get("from", []), named.get("to", [])
    if len(senders) != 1 or not receivers or set(named) - {"from", "to"}:
        raise ValueError("must be smtp://USER@HOST:PORT/?from=ADDRESS&to=ADDRESS, with both addresses")
    receivers = [one.strip() for each in receivers for one in each.split(",")]
    for one in (*senders, *receivers):
        if not (one.isprintable() and _ADDRESS.fullmatch(one)):
            raise ValueError("`from` and `to` must be addresses in ASCII, such as ops@example.org")
    return senders[0], tuple(receivers)


def _url(value: object) -> str | SecretReference:
    if isinstance(value, SecretReference):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a URL, or a reference to one")  # noqa: TRY004  (pydantic takes this alone)
    if not scheme_of(value) or value.partition(":")[0] in {scheme.value for scheme in Scheme}:
        try:
            return parse_reference(value, value.place if isinstance(value, Text) else None)
        except ValueError:
            raise ValueError(f"must be a URL, or a reference to one: {FORMS}") from None
    check_target(value)
    if scheme_of(value) not in (*WEB, *MAIL):
        raise ValueError(
            "must begin with https://, http://, smtps:// or smtp://; the URL of another service (Apprise) is"
            f" secret as a whole, so write a reference to it: {FORMS}"
        )
    parts = urlsplit(value)
    if parts.password is not None or SECRET_WORDS.search(parts.query):
        raise ValueError("must not hold a secret: use `password`, or write a reference to the whole URL")
    return str(value)


def _filled_by(text: str, known: Sequence[str]) -> str:
    """The template, if it has these placeholders alone."""
    unknown = [word for word in PLACEHOLDER.findall(text) if word not in known]
    if unknown:
        listed = ", ".join(f"`{{{word}}}`" for word in known)
        raise ValueError(f"`{{{unknown[0]}}}` is no placeholder here: there are {listed}")
    return text


def _template(text: str) -> str:
    return _filled_by(text, ("cluster", "run", "on", "text"))


def _short(seconds: float) -> float:
    if seconds > LONGEST_HOOK_SECONDS:
        raise ValueError(f"must be at most {LONGEST_HOOK_SECONDS:g}s")
    return seconds


_TARGET_URL = Annotated[
    str | SecretReference,
    PlainValidator(_url),
    WithJsonSchema({"type": "string", "pattern": "^[a-z]+:.+", "title": "URL or reference to it"}),
]
_AFTER: Final = "How long a hold lasts before it is reported, so that a short one is not."


class NotifySpec(TrustSpec):
    """Where messages about a run are sent. A message that cannot be sent never delays a run."""

    url: _TARGET_URL = Field(
        description="`http(s)://` is a webhook (a POST with a JSON object), `smtp(s)://` is mail, any other"
        " scheme is sent by Apprise (extra `notify`). A URL that holds a secret is written as a reference."
    )
    on: Annotated[tuple[On, ...], NOT_EMPTY] = Field(
        default=tuple(On), description="What is reported. `failed` is each failure."
    )
    after: Duration = Field(default=600.0, description=_AFTER)
    password: Unset[Reference] = Field(
        default=None, description="Reference to the password of the user in the URL."
    )
    bearer: Unset[Reference] = Field(
        default=None, description="Reference to a token, sent to a webhook as `Authorization: Bearer`."
    )
    text: Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_template)] = Field(
        default="{cluster}: {text}",
        description="Template of the text. Placeholders: `{cluster}`, `{run}`, `{on}`, `{text}`.",
    )
    name: Unset[GateName] = Field(
        default=None, description="Name in events and warnings. Default: the server, or the reference."
    )

    @model_validator(mode="after")
    def _fitting(self) -> NotifySpec:
        if isinstance(self.url, SecretReference):
            return self
        mail = scheme_of(self.url) in MAIL
        if self.bearer is not None and (mail or self.password is not None):
            raise ValueError("`bearer` is for a webhook, and not beside `password`")
        if self.password is not None and not urlsplit(self.url).username:
            raise ValueError("`password` needs a user in the URL: smtp://USER@HOST:PORT/…")
        return self


def _not_too_many(targets: tuple[NotifySpec, ...]) -> tuple[NotifySpec, ...]:
    if len(targets) > MOST_TARGETS:
        raise ValueError(f"must have at most {MOST_TARGETS} items")
    return targets


def _matchers(sets: tuple[dict[str, str], ...]) -> tuple[dict[str, str], ...]:
    for matchers in sets:
        if not matchers:
            raise ValueError("an item has no matcher: it would silence every alert")
        for label, value in matchers.items():
            if re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label) is None:
                raise ValueError("labels are letters, digits and `_`")
            _filled_by(value, ("host", "node"))
        if not any(matchers.values()):
            raise ValueError("an item matches empty labels alone: it would silence almost every alert")
        if not all(value.isprintable() and len(value) <= LONGEST_VALUE for value in matchers.values()):
            raise ValueError(f"a value must be at most {LONGEST_VALUE} printable characters")
    if len(sets) > MOST_SILENCES:
        raise ValueError(f"must have at most {MOST_SILENCES} items")
    if any(sets.count(matchers) > 1 for matchers in sets):
        raise ValueError("an item is there twice: each is a silence of its own")
    return sets


class SilencesSpec(LoginSpec):
    """The Alertmanager in which alerts are silenced while nodes are restarted."""

    url: BaseUrl = Field(description="URL of the server.")
    matchers: Annotated[tuple[dict[str, str], ...], NOT_EMPTY, AfterValidator(_matchers)] = Field(
        description="Each item is a silence: labels and values. `{host}` is the address of a node's host,"
        " `{node}` the name of the node; an item without them is for alerts of the cluster."
    )
    at_most: Duration = Field(default=4 * 3600.0, description="Longest time that a wave is silenced in all.")


class SilenceSpec(Spec):
    """Alerts are silenced while nodes of a wave are down or recover: by leases of 15 minutes."""

    alertmanager: SilencesSpec = Field(description="Where.")


SILENCE: Final = "Where alerts are silenced while nodes are restarted."


def _textfile(path: str) -> str:
    if not path.isprintable():
        raise ValueError("must be one line of printable text")
    if not path.endswith(".prom"):
        raise ValueError("must end in .prom: node_exporter reads no other files")
    return path


class MetricsSpec(Spec):
    """Metrics of the cluster's last run."""

    textfile: Annotated[Name, AfterValidator(_textfile)] = Field(
        description="File in the folder of node_exporter's textfile collector; another one for each cluster."
    )


METRICS: Final = "Where metrics of the cluster's last run are written."


class GrafanaSpec(TrustSpec):
    """The Grafana that shows runs and waves as annotations."""

    url: BaseUrl = Field(description="URL of the server.")
    token: Reference = Field(description="Reference to a token that may read and write annotations.")


class AnnotationsSpec(Spec):
    """A run and each of its waves are shown in charts, from begin to end."""

    grafana: GrafanaSpec = Field(description="Where.")


ANNOTATIONS: Final = "Where a run and its waves are shown in charts."

NotifyTargets = Annotated[tuple[NotifySpec, ...], AfterValidator(_not_too_many)]
NOTIFY: Final = "Where messages about a run are sent."


class RunHookSpec(Spec):
    """A command at a moment of a run, on this machine. It gets the event as JSON on standard input.

    Its failure is a warning.
    """

    run: Annotated[CommandLine, NO_PLACEHOLDER] = Field(
        description="Command line; it runs in the playbook's folder."
    )
    timeout: Annotated[Duration, AfterValidator(_short)] = Field(
        default=10.0, description="After this time it is killed."
    )
    after: Duration = Field(default=600.0, description=f"Only for `run_held`. {_AFTER}")


MOMENTS: Final = {
    "run_started": (On.STARTED,),
    "run_held": (On.HELD,),
    "run_ended": (On.DONE, On.PAUSED, On.STOOD_DOWN),
}
"""Hooks of a run, with what each is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How the certificate of a server is checked."""

    ca: str | None = None  # file of authorities instead of the system's
    strict: bool = True  # by RFC 5280, too


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTarget(Trust):
    """Where messages are sent."""

    name: str  # without secrets, unique among the targets of a run
    url: str | SecretReference  # or the reference to it
    on: frozenset[On]
    after: float  # seconds that a hold lasts before it is reported
    text: str  # template
    password: SecretReference | None = None
    bearer: SecretReference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AroundHook:
    """A command of a playbook about the run."""

    name: str
    run: str
    folder: str  # in which it runs
    on: frozenset[On]
    after: float  # as of a target; `timeout`: in seconds, too
    timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AroundServer(Trust):
    """A server around a run."""

    url: str

    @property
    def name(self) -> str:
        """Its name in events."""
        return _usual_name(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alertmanager(AroundServer):
    """Where alerts are silenced."""

    matchers: tuple[Mapping[str, str], ...]  # labels and values of each silence
    at_most: float  # seconds that a wave is silenced in all
    auth: SecretReference | None = None  # reference to `user:password`; `bearer`: to a token
    bearer: SecretReference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grafana(AroundServer):
    """Where annotations are made."""

    token: SecretReference


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What surrounds a run, from its files."""

    targets: tuple[MessageTarget, ...] = ()
    hooks: tuple[AroundHook, ...] = ()
    alertmanager: Alertmanager | None = None
    textfile: Path | None = None
    grafana: Grafana | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing surrounds it."""
        return self == Around()

    @property
    def references(self) -> tuple[SecretReference, ...]:
        """All references, each with its place."""
        found = [one for target in self.targets for one in (target.url, target.password, target.bearer)]
        found += [self.alertmanager.auth, self.alertmanager.bearer] if self.alertmanager else []
        found += [self.grafana.token] if self.grafana else []
        return tuple(one for one in found if isinstance(one, SecretReference))


def _placed(spec: Spec, folder: Path) -> dict[str, Any]:
    """The values of a mapping, with paths that start at the folder of its file."""

    def one(name: str, value: object) -> object:
        if isinstance(value, SecretReference):
            return absolute(value, folder)
        return at_home(value, folder) if name == "ca" and isinstance(value, str) else value

    return {name: one(name, value) for name, value in spec}


def targets_in(specs: Sequence[NotifySpec], folder: Path) -> tuple[MessageTarget, ...]:
    """The targets of a file; relative paths in them start at the file's folder."""
    return tuple(
        MessageTarget(
            **{**_placed(spec, folder), "name": spec.name or _usual_name(spec.url), "on": frozenset(spec.on)}
        )
        for spec in specs
    )


def alertmanager_in(spec: SilenceSpec | None, folder: Path) -> Alertmanager | None:
    """The Alertmanager of a file; relative paths in it start at the file's folder."""
    return None if spec is None else Alertmanager(**_placed(spec.alertmanager, folder))


def grafana_in(spec: AnnotationsSpec | None, folder: Path) -> Grafana | None:
    """The Grafana of a file; relative paths in it start at the file's folder."""
    return None if spec is None else Grafana(**_placed(spec.grafana, folder))


def named_apart(targets: Sequence[MessageTarget]) -> tuple[MessageTarget, ...]:
    """The targets, each with a name of its own: a run remembers by it what was sent."""
    taken: set[str] = set()
    found = []
    for target in targets:
        found.append(replace(target, name=free_name(target.name, taken)))
        taken.add(found[-1].name)
    return tuple(found)


def _usual_name(url: str | SecretReference) -> str:
    """The server, without user, path and query, which may hold secrets; of a reference, what it names."""
    if isinstance(url, SecretReference):
        return url.shown
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}"


def hooks_in(hooks: object, folder: Path) -> tuple[AroundHook, ...]:
    """The hooks of a run in the `hooks` of a playbook."""
    found = []
    for moment, on in MOMENTS.items():
        specs: tuple[RunHookSpec, ...] = getattr(hooks, moment)
        for number, spec in enumerate(specs, start=1):
            found.append(
                AroundHook(
                    name=f"hook {moment}" if number == 1 else f"hook {moment} {number}",
                    folder=str(folder),
                    on=frozenset(on),
                    **dict(spec),
                )
            )
    return tuple(found)
