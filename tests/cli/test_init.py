"""`init` writes a file that the program takes, asks on a terminal alone, and writes nothing on bad input."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from orchestrator.cli.program import run
from orchestrator.config.cluster import ClusterFile, ClusterSpec, load_cluster
from orchestrator.errors import ExitCode
from orchestrator.hosts.connection import UnknownKey, unknown_keys
from orchestrator.hosts.find_service import FoundService, NotAsked
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Reading
from tests.cli.console import Console
from tests.cli.secured_cluster import PASSWORD, REFUSED, USER, Certificates, SecuredCluster
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import reply
from tests.ports import free_port

HERE = ("--no-ssh",)
ASSUMED = "the service is systemd elasticsearch"
CORRECT = "Correct `hosts.service` in the file if it is not so"
LOGIN = ("--username", USER, "--password", "env:ES_PASSWORD")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def folder(console: Console, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with an empty home beside it."""
    monkeypatch.chdir(console.folder)
    monkeypatch.setenv("HOME", str(console.home))
    monkeypatch.delenv("ORCHESTRATE_CONFIG", raising=False)
    monkeypatch.setenv("ES_PASSWORD", PASSWORD)
    return console.folder


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:
    """A terminal at which this is typed; what is printed there."""

    def make(typed: str) -> Terminal:
        out = Terminal()
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        monkeypatch.setattr("sys.stdout", out)
        return out

    return make


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls") / "one")


@pytest.fixture
def secured(certificates: Certificates) -> Iterator[SecuredCluster]:
    with SecuredCluster(certificates) as cluster:
        yield cluster


def files_of(console: Console) -> list[str]:
    """Everything in the home and in the working directory."""
    roots = (console.home, console.folder)
    return sorted(str(path.relative_to(root.parent)) for root in roots for path in root.rglob("*"))


def spec_of(path: Path) -> ClusterSpec:
    file: ClusterFile = load_cluster(path, home=path.parent)
    assert isinstance(file.spec, ClusterSpec)
    return file.spec


def fingerprint_of(certificates: Certificates) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificates.node.read_text())).hexdigest()


def test_the_next_commands_are_quoted(
    folder: Path, secured: SecuredCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "my files").mkdir()
    (folder / "ca.pem").write_bytes(secured._certificates.ca.read_bytes())
    command = ("init", "--endpoint", secured.url, "--out", "my files/prod.yml", "--ca", "ca.pem")
    assert run([*command, *LOGIN, *HERE]) == ExitCode.DONE
    said = capfd.readouterr().out.splitlines()[-3:]
    assert [line.partition("--cluster ")[2] for line in said] == [
        "'my files/prod.yml'",
        "'my files/prod.yml'",
        "'my files/prod.yml' --seed 7",
    ]


def test_flags_suffice_and_the_file_has_what_the_cluster_shows(
    folder: Path, console: Console, secured: SecuredCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "configs" / "clusters").mkdir(parents=True)
    (folder / "configs" / "clusters" / "ca.pem").write_bytes(secured._certificates.ca.read_bytes())
    command = ("init", "--endpoint", secured.url, "--cluster", "prod", "--ca", "configs/clusters/ca.pem")
    assert run([*command, *LOGIN, *HERE]) == ExitCode.DONE
    path = folder / "configs" / "clusters" / "prod.yml"
    text, spec = path.read_text(), spec_of(path)
    assert (spec.name, spec.expect.nodes, spec.tls.ca) == ("lab", 3, "ca.pem")
    assert spec.endpoints == (secured.url, *(f"https://{place}" for place in secured.places.values()))
    assert spec.auth is not None
    assert spec.auth.basic is not None
    assert (spec.auth.basic.username, str(spec.auth.basic.password)) == (USER, "env:ES_PASSWORD")
    assert "# Zones: the cluster's awareness attribute is zone: a (2 nodes), b (1 node)." in text
    assert "# ASSUMED, correct it if it is not so: the service is systemd" in text
    out, err = capfd.readouterr()
    assert PASSWORD not in text + out + err
    assert out.splitlines()[-4:] == [
        f"assumed: {ASSUMED}, the usual one, as the hosts were not read. {CORRECT}",
        "next: orchestrate validate --cluster prod",
        "      orchestrate plan --cluster prod",
        "      orchestrate rehearse --cluster prod --seed 7",
    ]
    assert files_of(console) == [
        "folder/configs",
        "folder/configs/clusters",
        "folder/configs/clusters/ca.pem",
        "folder/configs/clusters/prod.yml",
    ]


def test_without_a_folder_the_file_goes_below_the_home(
    folder: Path, console: Console, capfd: pytest.CaptureFixture[str]
) -> None:
    with SmallCluster() as server:
        assert run(["init", "--endpoint", server.url, *HERE, "--output", "json"]) == ExitCode.DONE
        path = console.home / ".config" / "orchestrate" / "clusters" / "lab.yml"
        summary = json.loads(capfd.readouterr().out)
        assert (summary["outcome"], summary["path"], summary["nodes"]) == ("done", str(path), 3)
        assert summary["endpoints"] == list(spec_of(path).endpoints) == [server.url]
        assert run(["plan", "--cluster", "lab"]) == ExitCode.HELD  # found; no host is reached by SSH
    assert not list(folder.iterdir())


def test_it_asks_for_trust_credentials_name_and_ssh(
    folder: Path,
    secured: SecuredCluster,
    terminal: Callable[[str], Terminal],
    capfd: pytest.CaptureFixture[str],
) -> None:
    (folder / "key").touch()
    login = [USER, "hunter2", "env:UNSET", "env:ES_PASSWORD"]
    answers = [
        "",
        "y",
        *login,
        "a/b",
        "prod",
        "a b",
        "",
        "deploy",
        "nowhere.key",
        "",
        "y",
        "",
        "key",
        "n",
        "",
    ]
    shown = terminal("".join(f"{answer}\n" for answer in answers))
    (folder / "configs" / "clusters").mkdir(parents=True)
    assert run(["init", "--endpoint", secured.url]) == ExitCode.DONE
    path = folder / "configs" / "clusters" / "prod.yml"
    text, spec = path.read_text(), spec_of(path)
    pinned = fingerprint_of(secured._certificates)
    assert (spec.tls.fingerprint or "").replace(":", "").lower() == pinned
    assert spec.auth is not None
    assert spec.auth.basic is not None
    assert str(spec.auth.basic.password) == "env:ES_PASSWORD"
    assert (spec.hosts.user, spec.hosts.identity) == ("deploy", str(folder / "key"))
    assert spec.hosts.service.unit == "elasticsearch"
    assert "# ASSUMED, correct it if it is not so: the service is systemd" in text
    assert spec.hosts.known_hosts == "~/.ssh/known_hosts"
    said = capfd.readouterr().err
    assert "subject  CN=orchestrator lab node" in said
    assert "issuer   CN=orchestrator lab authority" in said
    assert "valid    20" in said
    assert spec.tls.fingerprint is not None
    assert f"SHA-256  {spec.tls.fingerprint}" in said
    assert "--password: a secret is never written here" in said
    assert "--password: secret env:UNSET: the environment variable UNSET is not set. Name another" in said
    assert "--ssh-user: 'a b' cannot be the name of an account" in said
    assert "nowhere.key: there is no such file" in said
    assert said.count("looking on the hosts") == 2
    assert "`hosts." not in said
    assert "'a/b' cannot be the name of a cluster file" in said
    assert "hunter2" not in text + said
    assert PASSWORD not in text + said + shown.getvalue()
    assert "no connection to es1, es2, es3" in said


def test_unknown_host_keys_have_one_advice_and_own_question(
    folder: Path,
    secured: SecuredCluster,
    terminal: Callable[[str], Terminal],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def look(settings: Collection[HostSettings], *_: object) -> Mapping[NodeName, Reading[FoundService]]:
        keys = [
            UnknownKey(name=one.node, host=one.node, port=22, shown="SHA256:x", files=("~/known",))
            for one in settings
        ]
        found = {one.name: NotAsked(reason=unknown_keys([one]), key=one) for one in keys}
        return {NodeName(name): one for name, one in found.items()}

    monkeypatch.setattr("orchestrator.runs.discovery.find_services", look)
    (folder / "configs" / "clusters").mkdir(parents=True)
    (folder / "configs" / "clusters" / "lab.yml").touch()
    shown = terminal("prod\n\n\ny\nn\n\n")
    trust = ("--ca", str(secured._certificates.ca))
    assert run(["init", "--endpoint", secured.url, *trust, *LOGIN]) == ExitCode.DONE
    said = capfd.readouterr().err
    assert said.count("ssh-keyscan -p 22 es1 es2 es3 >> ~/known") == said.count("ssh-keyscan") == 2
    assert "service not found" not in said
    assert "--known-hosts names another file" in said
    assert said.count("looking on the hosts") == 2
    asked = shown.getvalue()
    assert asked.count("host keys are known?") == 2
    assert asked.count("SSH user of the hosts") == 1
    assert said.index("lab.yml: exists") < said.index("looking on the hosts")
    assert "Name of the file, for --cluster: " in asked


def test_a_refused_login_is_asked_for_again(
    folder: Path,
    secured: SecuredCluster,
    terminal: Callable[[str], Terminal],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """An API key first, which this cluster does not know; then a user. The unit is named too."""
    answers = [str(secured._certificates.ca), "", "env:ES_PASSWORD", USER, "env:ES_PASSWORD", "es-data"]
    terminal("".join(f"{answer}\n" for answer in answers))
    assert run(["init", "--endpoint", secured.url, "--out", "new.yml", *HERE]) == ExitCode.DONE
    assert f"ApiKey {PASSWORD}" in [asked.headers.get("authorization") for asked in secured.asked]
    assert "refused the API key (401; secret from env:ES_PASSWORD)" in capfd.readouterr().err
    spec = spec_of(folder / "new.yml")
    assert spec.auth is not None
    assert spec.auth.api_key is None
    assert spec.hosts.service.unit == "es-data"
    assert "ASSUMED" not in (folder / "new.yml").read_text()


@contextmanager
def tls_port(certificates: Certificates) -> Iterator[tuple[int, list[bytes]]]:
    """A TLS port that closes plain connections, as Elasticsearch does; the first bytes of each."""
    heard: list[bytes] = []

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            heard.append(self.request.recv(4096, socket.MSG_PEEK))
            if heard[-1][:1] == b"\x16":
                with certificates.context().wrap_socket(self.request, server_side=True) as secure:
                    secure.recv(1)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1], heard
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.usefixtures("folder")
def test_http_on_a_tls_port_names_https_and_sends_no_secret(
    console: Console, certificates: Certificates, capfd: pytest.CaptureFixture[str]
) -> None:
    with tls_port(certificates) as (port, heard):
        assert run(["init", "--endpoint", f"http://127.0.0.1:{port}", *LOGIN, *HERE]) == ExitCode.USAGE
    assert f"try --endpoint https://127.0.0.1:{port}" in capfd.readouterr().err
    assert any(sent.startswith(b"GET ") for sent in heard)
    assert not any(b"authorization" in sent.lower() for sent in heard)
    assert files_of(console) == []


def test_https_is_offered_for_a_tls_port(
    folder: Path, secured: SecuredCluster, terminal: Callable[[str], Terminal]
) -> None:
    terminal("y\n\n")
    plain = secured.url.replace("https:", "http:")
    trust = ("--ca", str(secured._certificates.ca))
    assert run(["init", "--endpoint", plain, "--out", "new.yml", *trust, *LOGIN, *HERE]) == ExitCode.DONE
    assert spec_of(folder / "new.yml").endpoints[0] == secured.url


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("answers", ["", "\n", "\ny\nops\n", "\ny\nops\nenv:ES_PASSWORD\n"])
def test_a_terminal_that_goes_away_ends_it_with_nothing_written(
    console: Console, secured: SecuredCluster, terminal: Callable[[str], Terminal], answers: str
) -> None:
    terminal(answers)
    assert run(["init", "--endpoint", secured.url, *HERE]) == ExitCode.INTERRUPTED
    assert files_of(console) == []


@pytest.mark.usefixtures("folder")
def test_a_certificate_that_the_person_does_not_trust_ends_it(
    console: Console,
    secured: SecuredCluster,
    terminal: Callable[[str], Terminal],
    capfd: pytest.CaptureFixture[str],
) -> None:
    terminal("\nn\n")
    assert run(["init", "--endpoint", secured.url, *LOGIN, *HERE]) == ExitCode.USAGE
    assert capfd.readouterr().err.endswith(
        f"orchestrate: the certificate of {secured.url} is not trusted: nothing is written\n"
    )
    assert files_of(console) == []
    assert secured.asked == []  # neither a request nor a credential was sent


def test_a_node_with_an_unpinned_certificate_is_no_endpoint(
    folder: Path, certificates: Certificates, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = {"es3": Certificates(tmp_path / "other")}
    with SecuredCluster(certificates, own) as cluster:
        pinned = fingerprint_of(certificates)
        command = ("init", "--endpoint", cluster.url, "--fingerprint", pinned, "--out", "new.yml")
        assert run([*command, *LOGIN, *HERE]) == ExitCode.DONE
        assert spec_of(folder / "new.yml").endpoints == (cluster.url, f"https://{cluster.places['es2']}")
    refused = f"the certificate of https://{cluster.places['es3']} is not the one of"
    assert f"warning: no endpoint of es3: {refused} --fingerprint" in capfd.readouterr().err
    comments = " ".join((folder / "new.yml").read_text().replace("#", " ").split())
    assert f"No endpoint of es3: {refused} `tls.fingerprint`" in comments


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a case may use."""

    folder: Path
    secured: SecuredCluster
    small: SmallCluster
    strangers: Certificates

    def plain(self, *more: str) -> tuple[str, ...]:
        return ("--endpoint", self.small.url, *more)

    def tls(self, *more: str) -> tuple[str, ...]:
        return ("--endpoint", self.secured.url, *more)

    def trusted(self, *more: str) -> tuple[str, ...]:
        return self.tls("--ca", str(self.secured._certificates.ca), *more)

    def no_master(self) -> tuple[str, ...]:
        self.small.without_a_master()
        return self.plain()

    def unfit_name(self) -> tuple[str, ...]:
        state = self.small._state() | {"cluster_name": "my prod"}
        for path in list(self.small.answers):
            if path.startswith("/_cluster/state"):
                self.small.on(path, reply(state))
        return self.plain()

    def refused(self) -> tuple[str, ...]:
        for path in list(self.small.answers):
            self.small.on(path, REFUSED)
        return self.plain()


BAD: dict[str, tuple[Callable[[Stage], tuple[str, ...]], str]] = {
    "no endpoint": (lambda _: (), "Missing option '--endpoint'"),
    "an endpoint as an argument": (lambda s: (s.small.url,), "The endpoint is an option: --endpoint URL"),
    "two endpoints": (lambda s: s.plain(*s.plain()), "--endpoint is given twice"),
    "an endpoint without a port": (
        lambda _: ("--endpoint", "https://es1"),
        "--endpoint: must name the port",
    ),
    "an endpoint with a password": (
        lambda _: ("--endpoint", "https://u:hunter2@es1:9200"),
        "--endpoint: must not hold a user or a password",
    ),
    "an endpoint that is unreachable": (
        lambda _: ("--endpoint", f"http://127.0.0.1:{free_port()}"),
        "takes no connections: Connection refused",
    ),
    "no credentials": (
        lambda s: s.trusted(),
        "refused a request without credentials (401): missing authentication credentials. Give --",
    ),
    "no credentials over plain HTTP": (lambda s: s.refused(), "or --api-key REFERENCE"),
    "wrong credentials": (
        lambda s: s.trusted("--username", "other", "--password", "env:ES_PASSWORD"),
        "refused user other (401; secret from env:ES_PASSWORD)",
    ),
    "a certificate of an unknown authority": (
        lambda s: s.tls(*LOGIN),
        "Give the authority with --ca FILE, or compare the fingerprint with that of the node",
    ),
    "another authority": (
        lambda s: s.tls("--ca", str(s.strangers.ca), *LOGIN),
        "is not signed by an authority that we trust",
    ),
    "another fingerprint": (
        lambda s: s.tls("--fingerprint", "ab" * 32, *LOGIN),
        "is not the one of --fingerprint",
    ),
    "no fingerprint": (lambda s: s.tls("--fingerprint", "ab"), "--fingerprint: must be 64 hexadecimal"),
    "no file of an authority": (
        lambda s: s.tls("--ca", "nowhere.pem"),
        "--ca: {folder}/nowhere.pem cannot be read: No such file",
    ),
    "a secret in place of its reference": (
        lambda s: s.trusted("--username", USER, "--password", "hunter2"),
        "--password: a secret is never written here; write a reference to it",
    ),
    "a variable that is not set": (
        lambda s: s.trusted("--username", USER, "--password", "env:UNSET"),
        "orchestrate: --password: secret env:UNSET: the environment variable UNSET is not set",
    ),
    "a user without a password": (lambda s: s.plain("--username", USER), "needs --password REFERENCE"),
    "a password without a user": (
        lambda s: s.plain("--password", "env:ES_PASSWORD"),
        "--password needs --username",
    ),
    "a key and a user": (
        lambda s: s.plain("--api-key", "env:ES_PASSWORD", "--username", USER),
        "--api-key and --username exclude each other",
    ),
    "a key and a password": (
        lambda s: s.plain("--api-key", "env:ES_PASSWORD", "--password", "env:ES_PASSWORD"),
        "--api-key and --password exclude each other",
    ),
    "an authority and a fingerprint": (
        lambda s: s.plain("--ca", "ca.pem", "--fingerprint", "ab" * 32),
        "--ca and --fingerprint exclude each other",
    ),
    "a name and a path": (
        lambda s: s.plain("--cluster", "prod", "--out", "prod.yml"),
        "--cluster and --out exclude each other",
    ),
    "a name with a slash": (
        lambda s: s.plain("--cluster", "a/b"),
        "'a/b' cannot be the name of a cluster file",
    ),
    "a cluster whose name is no file's": (
        lambda s: s.unfit_name(),
        "'my prod' cannot be the name of a cluster file",
    ),
    "a folder that is a file": (
        lambda s: s.plain("--out", "there.yml/new.yml"),
        "there.yml/new.yml: cannot be written: {folder}/there.yml is no directory",
    ),
    "a file that exists": (
        lambda s: s.plain("--out", "there.yml"),
        "there.yml: exists; nothing is overwritten",
    ),
    "a name that exists": (
        lambda s: s.plain("--cluster", "taken"),
        "clusters/taken.yml: exists; nothing is overwritten: choose another name",
    ),
    "the cluster's name that exists": (lambda s: s.plain(), "clusters/lab.yml: exists; nothing"),
    "a place where no file can be": (
        lambda s: s.plain("--out", "/proc/orchestrate-no-such/new.yml", *HERE),
        "/proc/orchestrate-no-such/new.yml: cannot be written: No such file",
    ),
    "an SSH user that is none": (
        lambda s: s.plain("--ssh-user", "a b"),
        "--ssh-user: 'a b' cannot be the name of an account",
    ),
    "no master": (lambda s: s.no_master(), "the cluster cannot be read: there is no elected master"),
    "Riak": (
        lambda s: s.plain("--kind", "riak"),
        "no cluster file is written for Riak. Copy configs/clusters/riak-example.yml",
    ),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message_and_nothing_is_written(
    case: str,
    console: Console,
    secured: SecuredCluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments, says = BAD[case]
    folder = console.folder
    (folder / "there.yml").write_text("kept\n")
    at_home = console.home / ".config" / "orchestrate" / "clusters"
    at_home.mkdir(parents=True)
    for name in ("taken", "lab"):
        (at_home / f"{name}.yml").write_text("kept\n")
    before = files_of(console)
    with SmallCluster() as small:
        stage = Stage(
            folder=folder, secured=secured, small=small, strangers=Certificates(tmp_path / "strangers")
        )
        code = run(["init", *arguments(stage)])
    out, err = capfd.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith(("warning: ", "found: "))]
    assert (code, out, len(lines)) == (ExitCode.USAGE, "", 1), err
    assert lines[0].startswith("orchestrate: ")
    assert says.format(folder=folder) in lines[0]
    assert "hunter2" not in err
    assert PASSWORD not in err
    assert files_of(console) == before
    assert {path.read_text() for path in (folder / "there.yml", at_home / "lab.yml")} == {"kept\n"}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>", "did not answer with JSON"),
        (b'{"couchdb": "Welcome"}', "answers, but is neither Elasticsearch nor OpenSearch"),
    ],
)
def test_another_server_is_refused(
    console: Console, capfd: pytest.CaptureFixture[str], body: bytes, says: str
) -> None:
    with SmallCluster() as server:
        server.on("/_nodes/_local/http", reply(body, headers={}))
        assert run(["init", "--endpoint", server.url]) == ExitCode.USAGE
    assert says in capfd.readouterr().err
    assert files_of(console) == []


@pytest.mark.usefixtures("folder")
def test_a_version_that_is_not_restarted_is_refused_by_name(
    console: Console, capfd: pytest.CaptureFixture[str]
) -> None:
    with SmallCluster(version="10.0.0") as server:
        assert run(["init", "--endpoint", server.url]) == ExitCode.USAGE
    assert "Elasticsearch 10.0.0" in (said := capfd.readouterr().err)
    assert "not in this version" in said
    assert files_of(console) == []


@pytest.fixture
def no_root() -> Iterator[None]:
    """Root may write everywhere."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    yield
    os.seteuid(was)


@pytest.mark.usefixtures("folder")
def test_without_the_right_to_write_the_cluster_is_not_even_read(
    capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place, SmallCluster() as server:
        Path(place).chmod(0o555)
        request.getfixturevalue("no_root")
        assert run(["init", "--endpoint", server.url, "--out", f"{place}/sub/new.yml"]) == ExitCode.USAGE
        assert server.asked == []
        assert list(Path(place).iterdir()) == []
        said = capfd.readouterr().err
        os.seteuid(os.getuid())
    assert said == (f"orchestrate: {place}/sub/new.yml: cannot be written: no right to write in {place}\n")
