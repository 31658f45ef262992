"""Gates of a playbook: conditions outside the cluster that are read before every wave."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    StrictInt,
    WithJsonSchema,
    model_validator,
)

from orchestrator.config.reaching import LoginSpec, ServerSpec
from orchestrator.config.secrets import Scheme, SecretReference, parse_reference
from orchestrator.config.spec import NO_PLACEHOLDER, CommandLine, Duration, Name, Spec, Unset
from orchestrator.model.gate import (
    AlertmanagerGate,
    CommandGate,
    EqualTo,
    Gate,
    HttpAccess,
    HttpJsonGate,
    PrometheusGate,
    RabbitQueueGate,
    Scalar,
    Silenced,
    Since,
    Within,
)
from orchestrator.model.policy import Policy

MOST_GATES: Final = 20
MOST_MATCHERS: Final = 20
LONGEST_VALUE: Final = 1000
"""Characters of the value of a matcher: all of them are in the address of one request."""
LONGEST_SECONDS: Final = 60.0
"""Of one answer: gates are read again while allocation is disabled, which should be short."""

SECRET_WORDS: Final = re.compile(r"token|secret|passw|api_?key|access_?key|signature", re.IGNORECASE)


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a URL such as http://mq:15672") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or a password; `auth` is for them, by reference")
    if parts.scheme not in {"http", "https"}:
        raise ValueError("must begin with http:// or https://")
    if parts.fragment:
        raise ValueError("must not have a `#`: what follows it is a page in a browser")
    if not host or port == 0 or not url.isprintable() or " " in url:
        raise ValueError("must be a URL such as http://mq:15672")
    if any(SECRET_WORDS.search(key) for key, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise ValueError("must not hold a secret; `auth` or `bearer` is for it, by reference")
    return parts.geturl()  # with the scheme in small letters, as all that read it expect


def _check_base(url: str) -> str:
    checked = _check_url(url)
    if urlsplit(url).query:
        raise ValueError("must end with the port or a path; the query of the API is put after it")
    return checked.rstrip("/")


def _check_timeout(seconds: float) -> float:
    if seconds > LONGEST_SECONDS:
        raise ValueError(f"must be at most {LONGEST_SECONDS:g}s: gates are asked with allocation off, too")
    return seconds


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("must be a number")
    return float(value)


def _scalar(value: object) -> Scalar:
    if isinstance(value, str):
        return str(value)
    if value is not None and not isinstance(value, bool | int | float):
        raise ValueError("must be a text, a number, true, false or null")
    return value


_MATCHER: Final = re.compile(
    r"([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\"\s]*))"
)
"""Label, operator, and a value that is quoted or not, as Alertmanager's own files have them."""


def _matchers(value: object) -> tuple[str, ...]:
    """Matchers as the API takes them, from labels with values, or from texts as in Alertmanager's files."""
    match value:
        case dict():
            written = [_matcher(label, "=", text) for label, text in value.items()]
        case list():
            written = [_written(number, text) for number, text in enumerate(value)]
        case _:
            raise ValueError(
                "must be labels with their values, or a list such as ['severity=~\"page|ticket\"']"
            )
    if not 1 <= len(written) <= MOST_MATCHERS:
        raise ValueError(f"must have 1 to {MOST_MATCHERS} matchers")
    return tuple(written)


def _written(number: int, text: object) -> str:
    found = _MATCHER.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"[{number}] is no matcher such as 'severity=~\"page|ticket\"'")
    label, operator, quoted, bare = found.groups()
    return _matcher(label, operator, bare if quoted is None else re.sub(r"\\([\"\\])", r"\1", quoted))


def _matcher(label: object, operator: str, value: object) -> str:
    if not isinstance(label, str) or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", label):
        raise ValueError("a label has letters, digits and _ in its name, and no digit first")
    if not isinstance(value, str) or not value.isprintable() or len(value) > LONGEST_VALUE:
        raise ValueError(
            f"the value of {label} must be a text of at most {LONGEST_VALUE} printable characters"
        )
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{label}{operator}"{escaped}"'


def _one_line(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("must be one line of printable text, without spaces around it")
    return name


_URL = WithJsonSchema({"type": "string", "pattern": "^https?://", "title": "URL"})
Url = Annotated[str, AfterValidator(_check_url), _URL]
BaseUrl = Annotated[str, AfterValidator(_check_base), _URL]
Timeout = Annotated[Duration, AfterValidator(_check_timeout)]
Number = Annotated[float, PlainValidator(_number), WithJsonSchema({"type": "number"})]
Wanted = Annotated[
    Scalar,
    PlainValidator(_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean", "null"], "title": "text, number, true, false"}),
]
Matchers = Annotated[
    tuple[str, ...],
    PlainValidator(_matchers),
    WithJsonSchema(
        {
            "type": ["object", "array"],
            "additionalProperties": {"type": "string"},
            "items": {"type": "string"},
            "title": "labels with values, or list of text",
        }
    ),
]
GateName = Annotated[Name, AfterValidator(_one_line)]
_NAME: Final = "Name of the gate. Default: from its kind and its target."


class _HttpSpec(ServerSpec):
    """The common keys of all gates that read a server."""

    timeout: Timeout = Field(
        default=10.0, description="Limit for the whole answer. After it the gate counts as closed."
    )
    name: Unset[GateName] = Field(default=None, description=_NAME)


class RabbitQueueSpec(_HttpSpec):
    """Open while a RabbitMQ queue holds no more than this many messages, by the management API."""

    url: BaseUrl = Field(description="URL of the management plugin.")
    queue: Name = Field(description="The queue's name.")
    vhost: Name = Field(default="/", description="Its virtual host.")
    max_messages: Annotated[StrictInt, Field(ge=0)] = Field(
        description="Maximum number of messages, ready and unacknowledged."
    )


class PrometheusSpec(LoginSpec, _HttpSpec):
    """Open while every sample of an instant query is within the limits; closed without samples."""

    url: BaseUrl = Field(description="URL of the server.")
    query: Annotated[str, Field(min_length=1, max_length=4000)] = Field(description="PromQL.")
    min: Unset[Number] = Field(default=None, description="No sample may be below it.")
    max: Unset[Number] = Field(default=None, description="No sample may be above it.")

    @model_validator(mode="after")
    def _limited(self) -> PrometheusSpec:
        _check_limits(self.min, self.max, "`min`, `max` or both")
        return self


class HttpJsonSpec(LoginSpec, _HttpSpec):
    """Open while one value of a JSON document is as configured."""

    url: Url = Field(description="URL of the document.")
    path: Name = Field(
        description="Keys and list positions, as in `checks.0.status`; or a JSON pointer, as in `/a.b/c`."
    )
    equals: Wanted = Field(
        default=None, description="The wanted value, of the same type: the text 5 is not the number 5."
    )
    min: Unset[Number] = Field(default=None, description="Minimum, if the value is a number.")
    max: Unset[Number] = Field(default=None, description="Maximum, if the value is a number.")

    @model_validator(mode="after")
    def _one_condition(self) -> HttpJsonSpec:
        if "equals" not in self.model_fields_set:
            _check_limits(self.min, self.max, "`equals`, or `min`, `max` or both")
        elif self.min is not None or self.max is not None:
            raise ValueError("needs either `equals` or limits, not both")
        return self


class FiringAlertsSpec(LoginSpec, _HttpSpec):
    """Open while no alert fires that matches. Alerts that fired when the run began do not count."""

    url: BaseUrl = Field(description="URL of the server.")
    matchers: Matchers = Field(
        description="Which alerts: labels with their values, as in `{cluster: prod}`; or a list of texts as "
        "in Alertmanager's files, with `=`, `!=`, `=~` and `!~`. All of them apply."
    )
    silenced: Silenced = Field(
        default=Silenced.IGNORE, description="Whether silenced alerts count. Inhibited ones never do."
    )
    since: Since = Field(
        default=Since.START,
        description="`start`: alerts that fired when the run began do not count until they were resolved. "
        "`always`: they count, too.",
    )


class CommandSpec(Spec):
    """Open while a command on this machine exits with 0. It gets few variables and no input."""

    run: Annotated[CommandLine, NO_PLACEHOLDER] = Field(
        description="Command line; it runs in the playbook's folder."
    )
    timeout: Timeout = Field(
        default=30.0, description="After this time it is killed, and the gate counts as closed."
    )
    name: Unset[GateName] = Field(default=None, description=_NAME)


_HttpGateSpec = RabbitQueueSpec | PrometheusSpec | HttpJsonSpec | FiringAlertsSpec
_AnySpec = _HttpGateSpec | CommandSpec


class GateSpec(Spec):
    """A gate: one of the five kinds."""

    rabbitmq_queue: Unset[RabbitQueueSpec] = Field(default=None, description="Messages of a queue.")
    prometheus: Unset[PrometheusSpec] = Field(default=None, description="A metric.")
    http_json: Unset[HttpJsonSpec] = Field(default=None, description="A value that a server reports.")
    alertmanager: Unset[FiringAlertsSpec] = Field(default=None, description="Alerts that fire.")
    command: Unset[CommandSpec] = Field(default=None, description="A command's exit code.")

    @model_validator(mode="after")
    def _one_kind(self) -> GateSpec:
        if len(self.model_fields_set) != 1:
            kinds = ", ".join(f"`{kind}`" for kind in type(self).model_fields)
            raise ValueError(f"needs exactly one of {kinds}")
        return self

    @property
    def of_kind(self) -> _AnySpec:
        """The kind that is set."""
        kinds = (self.rabbitmq_queue, self.prometheus, self.http_json, self.alertmanager, self.command)
        return next(spec for spec in kinds if spec is not None)


def _check_limits(minimum: float | None, maximum: float | None, wanted: str) -> None:
    if minimum is None and maximum is None:
        raise ValueError(f"needs {wanted}")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ValueError("`min` is above `max`: it would never open")


def _differently_named(gates: tuple[GateSpec, ...]) -> tuple[GateSpec, ...]:
    if len(gates) > MOST_GATES:
        raise ValueError(f"must have at most {MOST_GATES} items")
    given = Counter(name for gate in gates if (name := gate.of_kind.name) is not None)
    twice = next((name for name, count in given.items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"two gates are called {twice}: holds and `--disable-predicate` go by the name")
    return gates


GatesSpec = Annotated[tuple[GateSpec, ...], AfterValidator(_differently_named)]


def gates_in(specs: Sequence[GateSpec], folder: Path) -> tuple[Gate, ...]:
    """The gates as a run uses them; relative paths in them start at the playbook's folder."""
    taken = {name for spec in specs if (name := spec.of_kind.name) is not None}
    gates = []
    for spec in specs:
        of_kind = spec.of_kind
        name = of_kind.name or free_name(_usual_name(of_kind), taken)
        taken.add(name)
        gates.append(_gate(of_kind, name, folder))
    return tuple(gates)


def secrets_in(specs: Sequence[GateSpec], folder: Path) -> Iterator[SecretReference]:
    """The references of all gates, each with its place."""
    for spec in specs:
        of_kind = spec.of_kind
        if isinstance(of_kind, CommandSpec):
            continue
        bearer = of_kind.bearer if isinstance(of_kind, LoginSpec) else None
        yield from (absolute(one, folder) for one in (of_kind.auth, bearer) if one is not None)


def secrets_of(policy: Policy) -> Iterator[SecretReference]:
    """The same for a policy from a journal, without places."""
    for gate in policy.gates:
        if not isinstance(gate, CommandGate):
            yield from (parse_reference(one) for one in (gate.at.basic, gate.at.bearer) if one is not None)


def _usual_name(spec: _AnySpec) -> str:
    match spec:
        case RabbitQueueSpec(queue=queue):
            return f"rabbitmq_queue {queue}"
        case PrometheusSpec():
            return "prometheus"
        case FiringAlertsSpec():
            return "alertmanager"
        case HttpJsonSpec(path=path):
            return f"http_json {path}"
        case CommandSpec(run=run):
            return f"command {Path(run.split()[0] if run.split() else run).name}"


def free_name(usual: str, taken: set[str]) -> str:
    """The default name, with a number if another gate has it already."""
    name, number = usual, 1
    while name in taken:
        number += 1
        name = f"{usual} {number}"
    return name


def _gate(spec: _AnySpec, name: str, folder: Path) -> Gate:
    match spec:
        case CommandSpec(run=run, timeout=timeout):
            return CommandGate(name=name, run=run, folder=str(folder), timeout=timeout)
        case RabbitQueueSpec(queue=queue, vhost=vhost, max_messages=most):
            at = _access(spec, folder)
            return RabbitQueueGate(name=name, at=at, queue=queue, vhost=vhost, max_messages=most)
        case PrometheusSpec(query=query):
            within = Within(minimum=spec.min, maximum=spec.max)
            return PrometheusGate(name=name, at=_access(spec, folder), query=query, within=within)
        case FiringAlertsSpec(matchers=matchers, silenced=silenced, since=since):
            at = _access(spec, folder)
            return AlertmanagerGate(name=name, at=at, matchers=matchers, silenced=silenced, since=since)
        case HttpJsonSpec(path=path):
            by_value = "equals" in spec.model_fields_set
            return HttpJsonGate(
                name=name,
                at=_access(spec, folder),
                path=path,
                within=None if by_value else Within(minimum=spec.min, maximum=spec.max),
                equals=EqualTo(value=spec.equals) if by_value else None,
            )


def _access(spec: _HttpGateSpec, folder: Path) -> HttpAccess:
    bearer = spec.bearer if isinstance(spec, LoginSpec) else None
    return HttpAccess(
        url=spec.url,
        timeout=spec.timeout,
        basic=str(absolute(spec.auth, folder)) if spec.auth else None,
        bearer=str(absolute(bearer, folder)) if bearer else None,
        ca=at_home(spec.ca, folder) if spec.ca else None,
        strict=spec.strict,
    )


def absolute(reference: SecretReference, folder: Path) -> SecretReference:
    """The reference with an absolute path, so that it can be resolved in any folder."""
    if reference.scheme is not Scheme.FILE:
        return reference
    argument = at_home(reference.argument, folder)
    return SecretReference(scheme=reference.scheme, argument=argument, place=reference.place)


def at_home(path: str, folder: Path) -> str:
    """A path from a file, made absolute; `~` stays, since another account may resume the run."""
    return path if path == "~" or path.startswith("~/") else str(folder / path)
