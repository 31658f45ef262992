"""The bounded GET of gates, against real sockets: whatever a server does, it ends, and tells no secret."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from orchestrator.model.gate import AlertmanagerGate, GateView, HttpAccess
from orchestrator.model.reading import Reading, Unknown
from orchestrator.redact import Redactor
from orchestrator.runtime.gates import Gates, Ran, asker
from orchestrator.runtime.gates_http import MOST_BYTES, HttpGet
from tests.fakes.certificates import Certificates
from tests.fakes.scripted_http import Answerer, ScriptedServer, reply

SECRET = "watcher:hunter2"  # noqa: S105  (a test's own)
QUICK = 0.5
PATIENT = 10.0
PATH = "/api/q"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(certificates: Certificates) -> Iterator[ScriptedServer]:
    with serving(certificates) as running:
        yield running


@contextlib.contextmanager
def serving(certificates: Certificates) -> Iterator[ScriptedServer]:
    with ScriptedServer(tls=certificates.context()) as running:
        running.on(PATH, reply({"ok": True}))
        yield running


def get(
    url: str,
    timeout: float = PATIENT,
    *,
    ca: str | None = None,
    strict: bool = True,
    secret: Callable[[str], str] = lambda _: SECRET,
) -> Reading[bytes]:
    access = HttpAccess(url=url, timeout=timeout, basic="env:MQ_AUTH", ca=ca, strict=strict)
    with contextlib.closing(HttpGet(access, secret)) as ask:
        return ask(PATH, {"query": "private"})


def refusal(answer: Reading[object], *, secret: str = SECRET) -> str:
    """Why there is no answer; it never tells the secret or the query."""
    assert isinstance(answer, Unknown), answer
    for word in (*secret.split(":"), "d2F0Y2hlcjpodW50ZXIy", "private"):
        assert word not in answer.reason
    return answer.reason


def test_the_body_of_a_200_is_read_and_the_account_is_sent(server: ScriptedServer) -> None:
    server.on(PATH, reply({"messages": 3}))
    assert get(server.url) == b'{"messages": 3}'
    assert server.asked[0].headers["authorization"] == "Basic d2F0Y2hlcjpodW50ZXIy"
    assert server.asked[0].params == {"query": "private"}


@pytest.mark.parametrize("more", [0, 1])
def test_an_answer_has_a_largest_size(server: ScriptedServer, more: int) -> None:
    server.on(PATH, reply(b" " * (MOST_BYTES + more)))
    answer = get(server.url)
    if more:
        assert refusal(answer) == f"{server.url}{PATH}: the answer is larger than 1048576 bytes"
    else:
        assert not isinstance(answer, Unknown)


def test_an_answer_that_drips_ends_at_the_gate_s_timeout(server: ScriptedServer) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"
    server.on(PATH, lambda _asked, wire: (wire.send(head), wire.trickle(b" " * 60000, every=0.05))[0])
    assert refusal(get(server.url, QUICK)) == f"{server.url}{PATH}: the answer was not whole after 0.5 s"


def test_a_certificate_that_is_not_trusted_is_told(secure: ScriptedServer) -> None:
    said = refusal(get(secure.url))
    assert said.startswith(f"{secure.url}{PATH}: TLS: ")
    assert "certificate verify failed" in said
    assert secure.asked == []


def test_a_certificate_of_the_named_authority_is_trusted(
    secure: ScriptedServer, certificates: Certificates
) -> None:
    assert get(secure.url, ca=str(certificates.ca)) == b'{"ok": true}'


def test_a_broken_rule_of_form_needs_strict_false(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, key_usage=False)
    ca = str(certificates.ca)
    with serving(certificates) as server:
        said = refusal(get(server.url, ca=ca))
        broken = "breaks a rule of RFC 5280 (CA cert does not include key usage extension)"
        assert said.endswith(
            f"TLS: a certificate {broken}: issue a new one, or set the gate's `strict: false`"
        )
        assert get(server.url, ca=ca, strict=False) == b'{"ok": true}'


def test_a_file_of_authorities_that_is_missing_is_named(secure: ScriptedServer) -> None:
    assert refusal(get(secure.url, ca="/nowhere.pem")).endswith(
        "TLS: /nowhere.pem: No such file or directory"
    )


def test_a_denied_account_is_read_again_and_named_by_reference(server: ScriptedServer) -> None:
    server.on(PATH, reply({"error": SECRET}, status=401), reply({"ok": True}))
    secrets = iter([SECRET, "watcher:changed"])
    access = HttpAccess(url=server.url, basic="env:MQ_AUTH")
    with contextlib.closing(HttpGet(access, lambda _: next(secrets))) as ask:
        said = refusal(ask(PATH))
        assert said == f"{server.url}{PATH}: 401: it does not take what env:MQ_AUTH holds"
        assert ask(PATH) == b'{"ok": true}'
    first, second = (asked.headers["authorization"] for asked in server.asked)
    assert first != second


def test_a_secret_that_http_does_not_take_is_not_shown(server: ScriptedServer) -> None:
    secret = "wätcher:hünter\u2028"  # noqa: S105  (a test's own)
    access = HttpAccess(url=server.url, bearer="env:TOKEN")
    with contextlib.closing(HttpGet(access, lambda _: secret)) as ask:
        assert "the URL or the secret holds characters" in refusal(ask(PATH), secret=secret)


ALERTS = "/api/v2/alerts"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (reply(b" " * 10_000_000), "the answer is larger than 8388608 bytes"),
        (reply(b"<html>sign in</html>", kind="text/html"), "the answer is not JSON"),
        (reply({"error": SECRET}, status=401), "401: it does not take what env:MQ_AUTH holds"),
        (reply({"code": 1}, status=400), '400 So: it does not take cluster="prod", severity=~"a|b"'),
        (reply(b"", status=302, headers={"Location": "/x"}), "302: it redirects, which is not followed"),
        (reply([]), ""),
    ],
    ids=["10 MB", "a page", "denied", "a matcher that is wrong", "a redirect", "no alerts"],
)
def test_an_alertmanager_is_asked(server: ScriptedServer, answer: Answerer, says: str) -> None:
    """For all that match, silenced or not; it tells no secret, and none is sent elsewhere."""
    server.on(ALERTS, answer)
    access = HttpAccess(url=server.url, bearer="env:MQ_AUTH", timeout=PATIENT)
    gate = AlertmanagerGate(name="a", at=access, matchers=('cluster="prod"', 'severity=~"a|b"'))
    of_gate = asker(gate, secrets=lambda _: SECRET, run=lambda _line, _seconds: Ran(exit=0))
    with contextlib.closing(Gates([of_gate], redact=str)) as gates:
        view = gates.observe()["a"]
    if says:
        assert says in refusal(view)
    else:
        assert view == GateView(open=True, evidence="no alert fires")
    assert server.paths() == [ALERTS]
    assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"
    listed = [(name, "true") for name in ("active", "silenced", "inhibited", "unprocessed")]
    matchers = [("filter", matcher) for matcher in gate.matchers]
    assert parse_qsl(urlsplit(server.asked[0].target).query) == [*listed, *matchers]


def test_a_secret_in_a_body_is_gone_before_a_part_of_it_is_shown(server: ScriptedServer) -> None:
    server.on(PATH, reply({"echo": SECRET}))
    with contextlib.closing(
        HttpGet(HttpAccess(url=server.url), lambda _: SECRET, Redactor([SECRET]).without_known)
    ) as ask:
        assert ask(PATH) == b'{"echo": "[redacted]"}'
