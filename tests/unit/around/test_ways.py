"""How a message is sent, against real sockets: whatever a receiver does, it ends, and no secret is said."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.around.metrics import Figures, text_of
from orchestrator.around.story import Message, PublicEvent
from orchestrator.around.ways import MISSING, RunContext, require_usable, runs, sends
from orchestrator.around.web import NotSent
from orchestrator.config.around import Alertmanager, Around, AroundHook, MessageTarget, On
from orchestrator.config.secrets import SecretReference, parse_reference
from orchestrator.config.yaml import FilePlace
from orchestrator.errors import ConfigError, UsageError
from tests.fakes.around import run_context
from tests.fakes.scripted_http import Asked, ScriptedServer, Wire, hang, large, raw, reply
from tests.fakes.smtp import MailServer
from tests.lab.security import LabUser, Security, write_security

SECRET = "hunter2-hunter2"  # noqa: S105  (a test's own)
KEY = parse_reference("env:KEY")
PATIENT = 10.0
QUICK = 0.4
LINE = {"ts": "then", "run": "r1", "sequence": 7, "event": "hold", "evidence": f"password={SECRET}", "n": [1]}
HELD = Message(on="held", of=7, text="held by p", line=LINE)


def target(url: str | SecretReference, **more: Any) -> MessageTarget:
    given = {"name": "t", "on": frozenset(On), "after": 600.0, "text": "{cluster}: {text}"}
    return MessageTarget(url=url, **{**given, **more})


def why(
    url: str | SecretReference, seconds: float = PATIENT, by: RunContext | None = None, **more: Any
) -> NotSent:
    with pytest.raises(NotSent) as caught:
        sends(target(url, **more), by or run_context())(HELD, seconds)
    return caught.value


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        running.on("/hook", reply({}))
        yield running


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    security = Security(users=(LabUser(name="lab", password="lab-password"),))  # noqa: S106  (a test's own)
    write_security(security, ca=folder / "ca.pem", configs=[folder])
    return folder


@pytest.fixture
def tls(files: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "node.crt", files / "node.key")
    return context


# Webhooks -------------------------------------------------------------------------------------------


def test_a_webhook_gets_one_json_object(server: ScriptedServer) -> None:
    sends(target(f"{server.url}/hook"), run_context())(HELD, PATIENT)
    (asked,) = server.asked
    assert (asked.method, asked.headers["content-type"]) == ("POST", "application/json")
    assert asked.json == {
        "on": "held",
        "text": "prod: held by p",
        "cluster": "prod",
        "run": "r1",
        "event": {**LINE, "evidence": "password=[redacted]"},
    }
    assert "authorization" not in asked.headers


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("[{on}] {run}: {text}", "[held] r1: {run} {x}"),
        *((around.format("{text}"), around.format("{run} {x}")) for around in
          ('{{"text": "{}"}}', "a {{ b {}", "{} }}", "{{{}}}")),
    ],
)  # fmt: skip
def test_a_template_is_filled_once(server: ScriptedServer, template: str, filled: str) -> None:
    """Other braces of it are text, such as those of JSON, or of a chat's own marks."""
    message = replace(HELD, text="{run} {x}")
    sends(target(f"{server.url}/hook", text=template), run_context())(message, PATIENT)
    assert server.asked[0].json["text"] == filled


@pytest.mark.parametrize(
    ("user", "keys", "header"),
    [
        ("", {"bearer": KEY}, f"Bearer {SECRET}"),
        ("anna@", {"password": KEY}, f"Basic {b64encode(f'anna:{SECRET}'.encode()).decode()}"),
    ],
)
def test_a_webhook_is_logged_in_to(server: ScriptedServer, user: str, keys: Any, header: str) -> None:
    url = f"{server.url}/hook".replace("://", f"://{user}")
    sends(target(url, **keys), run_context(KEY=SECRET))(HELD, PATIENT)
    assert server.asked[0].headers["authorization"] == header


def test_a_whole_url_may_be_a_secret(server: ScriptedServer) -> None:
    url = f"{server.url}/hook?key={SECRET}".replace("://", f"://anna:{SECRET}@")
    sends(target(parse_reference("env:URL")), run_context(URL=url))(HELD, PATIENT)
    login = b64encode(f"anna:{SECRET}".encode()).decode()
    assert server.asked[0].headers["authorization"] == f"Basic {login}"
    assert server.asked[0].params == {"key": SECRET}


def test_the_password_in_a_url_is_removed_from_what_is_said(server: ScriptedServer) -> None:
    server.on("/echo", raw(f"HTTP/1.1 404 no {SECRET}\r\nContent-Length: 0\r\n\r\n".encode()))
    url = f"{server.url}/echo".replace("://", f"://anna:{SECRET}@")
    assert str(why(parse_reference("env:URL"), by=run_context(URL=url))) == "404 no [redacted]"


@pytest.mark.parametrize(
    ("answer", "said", "again"),
    [
        (reply({}, status=500), "500 So", True),
        (reply({}, status=429), "429 So", True),
        (reply({}, status=404), "404 So", False),
        (large(10), "the answer is larger than 65536 bytes", False),
        (hang, "0.4 s", False),
        (lambda _asked, wire: wire.trickle(b"HTTP/1.1 200 OK\r\nA: b\r\n" * 9, every=0.05), "0.4 s", False),
        (raw(b"no HTTP\r\n\r\n"), "connection broken", False),
    ],
)
def test_a_webhook_that_does_not_take_it(
    server: ScriptedServer, answer: Callable[[Asked, Wire], None], said: str, *, again: bool
) -> None:
    server.on("/broken", answer)
    began = time.monotonic()
    error = why(f"{server.url}/broken", QUICK if "0.4" in said else PATIENT)
    assert said in str(error)
    assert error.again is again
    assert time.monotonic() - began < 30


def test_a_redirect_carries_nothing_elsewhere(server: ScriptedServer) -> None:
    with ScriptedServer() as elsewhere:
        elsewhere.on("/hook", reply({}))
        server.on("/moved", reply({}, status=307, headers={"Location": f"{elsewhere.url}/hook"}))
        error = why(f"{server.url}/moved", bearer=KEY, by=run_context(KEY=SECRET))
        assert "it redirects, which is not followed" in str(error)
        assert elsewhere.asked == []


def test_a_server_that_is_not_there_is_tried_again() -> None:
    with ScriptedServer() as gone, MailServer() as no_mail:
        urls = (gone.url, _mail(no_mail))
    for error in map(why, urls):
        assert (str(error), error.again) == ("connection refused", True)


def test_a_server_without_tls_is_named_as_one(server: ScriptedServer) -> None:
    said = "it does not speak TLS: is it {}:// there?"
    assert str(why(f"https://127.0.0.1:{server.port}/hook")) == said.format("http")
    with MailServer() as mail:
        assert str(why(_mail(mail, scheme="smtps"))) == said.format("smtp")


def test_a_certificate_is_checked(tls: ssl.SSLContext, files: Path) -> None:
    with ScriptedServer(tls=tls) as secure:
        secure.on("/hook", reply({}))
        assert str(why(f"{secure.url}/hook")).startswith("TLS: ")
        sends(target(f"{secure.url}/hook", ca=str(files / "ca.pem")), run_context())(HELD, PATIENT)
        assert len(secure.asked) == 1
    assert "No such file" in str(why("https://127.0.0.1:1/", ca="/nowhere.pem"))


@pytest.mark.parametrize(
    "url", [f"http://anna:{SECRET}@127.0.0.1:1/{SECRET}?key={SECRET}", f"bad {SECRET}", SECRET]
)
def test_no_reason_holds_a_secret(url: str) -> None:
    error = why(parse_reference("env:URL"), QUICK, by=run_context(URL=url))
    assert SECRET not in str(error)


def test_a_secret_that_is_missing_names_its_place() -> None:
    at = FilePlace(file="prod.yml", line=5, key="notify[0].url")
    said = "prod.yml:5: notify[0].url: secret env:URL: the environment variable URL is not set"
    assert str(why(parse_reference("env:URL", at))) == said


# Mail -----------------------------------------------------------------------------------------------


def _mail(server: MailServer, user: str = "", scheme: str = "smtp") -> str:
    return f"{scheme}://{user}127.0.0.1:{server.port}/?from=orch@example.org&to=ops@example.org"


def test_mails_of_a_run_are_one_thread() -> None:
    with MailServer() as server:
        send = sends(target(f"{_mail(server)}&to=boss@example.org"), run_context())
        send(HELD, PATIENT)
        send(replace(HELD, on="cleared", of=9), PATIENT)
    first, second = server.mails
    assert (first["From"], first["To"]) == ("orch@example.org", "ops@example.org, boss@example.org")
    assert first["Message-ID"] == "<r1.7.held@example.org>"
    assert second["Message-ID"] == "<r1.9.cleared@example.org>"
    assert first["References"] == second["References"] == second["In-Reply-To"] == "<r1@example.org>"
    assert first["Subject"] == second["Subject"] == "prod: run r1"
    assert first["Auto-Submitted"] == "auto-generated", "no absent person's program answers it"
    assert str(first.get_payload()).splitlines() == ["prod: held by p", "", "held, run r1"]


def test_a_mail_has_the_addresses_as_they_are_written() -> None:
    with MailServer() as server:
        url = f"smtp://127.0.0.1:{server.port}/?from=Night%20<orch@b>&to=ops+night@c&to=root,ann@d"
        sends(target(url), run_context())(HELD, PATIENT)
    assert (server.mails[0]["From"], server.mails[0]["To"]) == ("Night <orch@b>", "ops+night@c, root, ann@d")
    assert [line.lower() for line in server.heard if "<" in line] == [
        *("mail from:<orch@b>", "rcpt to:<ops+night@c>", "rcpt to:<root>", "rcpt to:<ann@d>"),
    ]


def test_a_name_of_several_lines_adds_no_header() -> None:
    with MailServer() as server:
        send = sends(target(_mail(server)), replace(run_context(), cluster="x\nBcc: eve@example.org"))
        send(HELD, PATIENT)
    assert server.mails[0]["Bcc"] is None
    assert server.mails[0]["Subject"].startswith("x | Bcc")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_password_goes_over_tls(tls: ssl.SSLContext, files: Path, *, at_once: bool) -> None:
    with MailServer(tls=tls, at_once=at_once) as server:
        url = _mail(server, "anna@", "smtps" if at_once else "smtp")
        keys = {"password": KEY, "ca": str(files / "ca.pem")}
        sends(target(url, **keys), run_context(KEY=SECRET))(HELD, PATIENT)
        assert len(server.mails) == 1
        login = b64encode(f"\0anna\0{SECRET}".encode()).decode()
        assert f"AUTH PLAIN {login}" in server.heard
        assert "TLS" in str(why(url, password=keys["password"], by=run_context(KEY=SECRET)))


def test_a_password_is_not_sent_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.around.ways._LOOPBACK", ())
    with MailServer() as server:
        error = why(_mail(server, "anna@"), password=KEY, by=run_context(KEY=SECRET))
    assert "offers no encryption" in str(error)
    assert not any("AUTH" in line for line in server.heard)


@pytest.mark.parametrize(
    ("says", "said"),
    [
        ({"EHLO": b""}, "no answer within 0.4 s"),
        ({"MAIL": b"550 not you\r\n"}, "550 not you"),
        ({"RCPT": b"550 not them\r\n"}, "refused for ops@example.org"),
        ({"DATA": b"451 later\r\n"}, "451 later"),
        ({"EHLO": b"250-a\r\n" * 200_000}, "the answer is larger than 65536 bytes"),
        ({"MAIL": b"550-a\r\n" * 200_000 + b"550 a\r\n"}, "the answer is larger than 65536 bytes"),
    ],
)
def test_a_mail_server_that_does_not_take_it(says: dict[str, bytes], said: str) -> None:
    with MailServer(says=says) as server:
        error = why(_mail(server), QUICK if "0.4" in said else 3.0)
    assert said in str(error)
    assert not error.again


def test_a_mail_server_that_trickles_is_cut_off() -> None:
    def trickle(_asked: Asked, wire: Wire) -> None:
        wire.trickle(b"220-x\r\n" * 1000, every=0.05)

    with ScriptedServer() as server:
        server.on("/", trickle)
        url = f"smtp://127.0.0.1:{server.port}/?from=a@b&to=c@d"
        assert "within 0.4 s" in str(why(url, QUICK))


def test_a_mail_server_that_trickles_after_slow_tls_is_cut_off(tls: ssl.SSLContext, files: Path) -> None:
    """The time that TLS takes is a part of the limit, and what follows it is limited, too."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(b"220 here\r\n")
        connection.recv(1000)
        connection.sendall(b"250-here\r\n250 STARTTLS\r\n")
        connection.recv(1000)
        time.sleep(0.6 * QUICK)
        connection.sendall(b"220 go\r\n")
        time.sleep(0.6 * QUICK)
        with tls.wrap_socket(connection, server_side=True) as secure, suppress(OSError):
            while not ended.wait(0.05):
                secure.sendall(b"x")

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        url = f"smtp://127.0.0.1:{listener.getsockname()[1]}/?from=a@b&to=c@d"
        threads.submit(lambda: serve(listener.accept()[0]))
        sent = threads.submit(why, url, QUICK, ca=str(files / "ca.pem"))
        try:
            assert "no answer within 0.4 s" in str(sent.result(PATIENT))
        finally:
            ended.set()


def test_a_receiver_that_is_refused_is_named() -> None:
    """Also if the server takes the mail for others."""
    with MailServer(says={"RCPT TO:<BOSS@EXAMPLE.ORG>": b"550 not them\r\n"}) as server:
        error = why(f"{_mail(server)}&to=boss@example.org")
    assert str(error) == "refused for boss@example.org; others have it"
    assert not error.again
    assert len(server.mails) == 1


# Secrets --------------------------------------------------------------------------------------------

PLANTED = (
    f"password={SECRET}",
    f"Authorization: Bearer {SECRET}",
    f"https://anna:{SECRET}@host/",
    f"--token {SECRET}",
    f'{{"api_key": "{SECRET}"}}',
    f"known {SECRET} alone",
    b64encode(SECRET.encode()).decode(),
    SECRET.encode().hex(),
)


@pytest.mark.parametrize("planted", PLANTED)
def test_no_planted_secret_leaves(server: ScriptedServer, tmp_path: Path, planted: str) -> None:
    by = replace(run_context(), cluster=f"c {planted}", run=f"r {planted}")
    by.learn(SECRET)
    line = {**LINE, "why": planted, "deep": [{"deeper": (planted, planted)}]}
    message = Message(on="held", of=7, text=planted, line=line)
    with MailServer() as mail:
        for url in (f"{server.url}/hook", _mail(mail)):
            sends(target(url, text="{cluster} {run} {on} {text}"), by)(message, PATIENT)
    runs(_hook("cat > got", tmp_path), by)(message, PATIENT)
    figures = Figures(by.cluster, None)
    figures.see(
        PublicEvent(at=0.0, line={"run": by.run, "event": "run_started", "nodes": [], "planned": []}, text="")
    )
    said = [server.asked[0].body.decode(), str(mail.mails[0].get_payload()), (tmp_path / "got").read_text()]
    said += [*map(str, mail.mails[0].values()), text_of((figures,), 0.0, by.redact)]
    forms = (SECRET, b64encode(SECRET.encode()).decode(), SECRET.encode().hex())
    assert not [form for form in forms for text in said if form in text]


# Hooks and Apprise ----------------------------------------------------------------------------------


def _hook(run: str, folder: Path) -> AroundHook:
    return AroundHook(name="h", run=run, folder=str(folder), on=frozenset(On), after=0.0, timeout=PATIENT)


def test_a_hook_gets_the_event_on_its_input(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    runs(_hook("cat > got # in the folder", folder), run_context())(HELD, PATIENT)
    assert json.loads((folder / "got").read_text()) == {**LINE, "evidence": "password=[redacted]"}


@pytest.mark.parametrize(
    ("run", "timeout", "said"),
    [
        ("echo no; exit 3", PATIENT, "exit code 3: no"),
        ("sleep 60", 0.3, "0.3"),
        (f"echo token={SECRET}; false", PATIENT, "[redacted]"),
    ],
)
def test_a_hook_that_fails(tmp_path: Path, run: str, timeout: float, said: str) -> None:
    with pytest.raises(NotSent) as caught:
        runs(_hook(run, tmp_path), run_context())(HELD, timeout)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the package's own imports
def test_other_schemes_are_sent_by_apprise(server: ScriptedServer) -> None:
    pytest.importorskip("apprise")
    url = f"json://127.0.0.1:{server.port}/hook"
    sends(target(parse_reference("env:URL")), run_context(URL=url))(HELD, PATIENT)
    assert server.asked[0].json["message"] == "prod: held by p"
    server.on("/hook", reply({}, status=307, headers={"Location": f"{server.url}/elsewhere"}))
    assert "could not deliver" in str(why(parse_reference("env:URL"), by=run_context(URL=url)))
    assert {asked.path for asked in server.asked} == {"/hook"}
    assert "does not know" in str(why(parse_reference("env:URL"), by=run_context(URL="nothing://x")))


def test_an_installation_without_apprise_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.around.ways.find_spec", lambda _name: None)
    around = Around(targets=(target(parse_reference("env:URL"), name="chat"),))
    with pytest.raises(UsageError) as caught:
        require_usable(around, run_context(URL=f"slack://{SECRET}"))
    assert str(caught.value) == f"notify chat: {MISSING}"
    assert "pipx install --force '.[notify]'" in MISSING
    require_usable(around, run_context(URL="https://chat.example.org/hook"))


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [(None, ConfigError, "env:URL"), ("https://", UsageError, "notify t: must be a URL")],
)
def test_what_cannot_be_used_is_said_before_a_run(url: str | None, kind: type[Exception], said: str) -> None:
    by = run_context(URL=url) if url else run_context()
    with pytest.raises(kind, match=said):
        require_usable(Around(targets=(target(parse_reference("env:URL")),)), by)


def test_each_secret_is_looked_up_before_a_run() -> None:
    """Those of silences and annotations too, which the first wave alone would ask for."""
    at = Alertmanager(url="http://a:9093", matchers=(), at_most=1.0, auth=parse_reference("env:LOGIN"))
    with pytest.raises(ConfigError, match="env:LOGIN"):
        require_usable(Around(alertmanager=at), run_context())
    require_usable(Around(alertmanager=at), run_context(LOGIN="ops:pw"))
