"""`init` writes a file that the program takes, asks on a terminal alone, and writes nothing on bad input."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest
import typer

from docs.configuration import keys
from orchestrator.cli.program import app, run
from orchestrator.cli.work.init import _OPTIONS
from orchestrator.config.cluster import ClusterFile, load_cluster
from orchestrator.config.elasticsearch import ClusterSpec
from orchestrator.config.reaching import TlsSpec
from orchestrator.errors import ExitCode
from orchestrator.hosts.connection import UnknownKey, unknown_keys
from orchestrator.hosts.find_service import FoundService, NotAsked
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.reading import Reading
from tests.cli.console import Console, Said, pattern
from tests.cli.secured_cluster import PASSWORD, REFUSED, USER, SecuredCluster
from tests.cli.small_cluster import SmallCluster
from tests.fakes.cases import cases
from tests.fakes.certificates import Certificates
from tests.fakes.scripted_http import Answerer, reply
from tests.ports import free_port

HERE = ("--no-ssh",)
ASSUMED = "the service is systemd elasticsearch"
CORRECT = "Correct `hosts.service` in the file if it is not so"
LOGIN = ("--username", USER, "--password", "env:ES_PASSWORD")


@pytest.fixture
def console(console: Console) -> Console:
    return replace(console, environment={"ES_PASSWORD": PASSWORD})


def init(console: Console, *words: str, typed: str | None = None) -> Said:
    """`init`; no password comes out."""
    said = console.run("init", *words, typed=typed)
    for text in (said.out, said.err, *(path.read_text() for path in console.folder.rglob("*.yml"))):
        assert PASSWORD not in text
        assert "hunter2" not in text
    return said


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls") / "one")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of an authority that the cluster does not know."""
    return Certificates(tmp_path_factory.mktemp("tls") / "strangers")


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


def fingerprint_shown(certificates: Certificates) -> str:
    return bytes.fromhex(fingerprint_of(certificates)).hex(":").upper()


def trusting(cluster: SecuredCluster) -> tuple[str, ...]:
    """The endpoint, and the authority of its certificate."""
    return ("--endpoint", cluster.url, "--ca", str(cluster._certificates.ca))


def test_the_next_commands_are_quoted(console: Console, secured: SecuredCluster) -> None:
    (console.folder / "my files").mkdir()
    (console.folder / "ca.pem").write_bytes(secured._certificates.ca.read_bytes())
    place = ("--endpoint", secured.url, "--out", "my files/prod.yml", "--ca", "ca.pem")
    said = init(console, *place, *LOGIN, *HERE)
    assert said.code == ExitCode.DONE
    name = "'my files/prod.yml'"
    next_ones = [line.partition("--cluster ")[2] for line in said.out.splitlines()[-3:]]
    assert next_ones == [name, name, f"{name} --seed 7"]


def test_flags_suffice_and_the_file_has_what_the_cluster_shows(
    console: Console, secured: SecuredCluster
) -> None:
    clusters = console.folder / "configs" / "clusters"
    clusters.mkdir(parents=True)
    (clusters / "ca.pem").write_bytes(secured._certificates.ca.read_bytes())
    place = ("--endpoint", secured.url, "--cluster", "prod", "--ca", "configs/clusters/ca.pem")
    said = init(console, *place, *LOGIN, *HERE)
    assert said.code == ExitCode.DONE
    text, spec = (clusters / "prod.yml").read_text(), spec_of(clusters / "prod.yml")
    assert (spec.name, spec.expect.nodes, spec.tls.ca) == ("lab", 3, "ca.pem")
    assert spec.endpoints == (secured.url, *(f"https://{place}" for place in secured.places.values()))
    assert spec.auth is not None
    assert spec.auth.basic is not None
    assert (spec.auth.basic.username, str(spec.auth.basic.password)) == (USER, "env:ES_PASSWORD")
    assert "# Zones: the cluster's awareness attribute is zone: a (2 nodes), b (1 node)." in text
    assert "# ASSUMED, correct it if it is not so: the service is systemd" in text
    assert said.out.splitlines()[-4:] == [
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


def test_without_a_folder_the_file_goes_below_the_home(console: Console, cluster: SmallCluster) -> None:
    said = init(console, "--endpoint", cluster.url, *HERE, "--output", "json")
    path = console.home / ".config" / "orchestrate" / "clusters" / "lab.yml"
    (summary,) = said.lines
    assert (said.code, summary["outcome"], summary["path"]) == (ExitCode.DONE, "done", str(path))
    assert summary["nodes"] == 3
    assert summary["endpoints"] == list(spec_of(path).endpoints) == [cluster.url]
    found = console.run("plan", "--cluster", "lab")
    assert found.code == ExitCode.HELD  # no host is reached by SSH
    assert not list(console.folder.iterdir())


def test_it_asks_for_trust_credentials_name_and_ssh(console: Console, secured: SecuredCluster) -> None:
    (console.folder / "key").touch()
    login = [USER, "hunter2", "env:UNSET", "env:ES_PASSWORD"]
    of_ssh = ["a b", "deploy", "nowhere.key", "", "y", "", "key", "n", ""]
    answers = ["", "y", *login, "a/b", "prod", *of_ssh]
    path = console.folder / "configs" / "clusters" / "prod.yml"
    path.parent.mkdir(parents=True)
    said = init(console, "--endpoint", secured.url, typed="".join(f"{answer}\n" for answer in answers))
    assert said.code == ExitCode.DONE
    text, spec = path.read_text(), spec_of(path)
    assert spec.tls.fingerprint is not None
    assert spec.tls.fingerprint.replace(":", "").lower() == fingerprint_of(secured._certificates)
    assert spec.auth is not None
    assert spec.auth.basic is not None
    assert str(spec.auth.basic.password) == "env:ES_PASSWORD"
    assert (spec.hosts.user, spec.hosts.identity) == ("deploy", str(console.folder / "key"))
    assert spec.hosts.service.unit == "elasticsearch"
    assert "# ASSUMED, correct it if it is not so: the service is systemd" in text
    assert spec.hosts.known_hosts == "~/.ssh/known_hosts"
    for line in (
        "subject  CN=orchestrator lab node",
        "issuer   CN=orchestrator lab authority",
        "valid    20",
        f"SHA-256  {spec.tls.fingerprint}",
        "--password: a secret is never written here",
        "--password: secret env:UNSET: the environment variable UNSET is not set. Name another",
        "--ssh-user: 'a b' cannot be the name of an account",
        "nowhere.key: there is no such file",
        "'a/b' cannot be the name of a cluster file",
        "no connection to es1, es2, es3",
    ):
        assert line in said.err
    assert said.err.count("looking on the hosts") == 2
    assert "`hosts." not in said.err


def test_unknown_host_keys_have_one_advice_and_own_question(
    console: Console, secured: SecuredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(settings: Collection[HostSettings], *_: object) -> Mapping[NodeName, Reading[FoundService]]:
        keys = [
            UnknownKey(name=one.node, host=one.node, port=22, shown="SHA256:x", files=("~/known",))
            for one in settings
        ]
        return {NodeName(one.name): NotAsked(reason=unknown_keys([one]), key=one) for one in keys}

    monkeypatch.setattr("orchestrator.runs.first_file.find_services", look)
    (console.folder / "configs" / "clusters").mkdir(parents=True)
    (console.folder / "configs" / "clusters" / "lab.yml").touch()
    said = init(console, *trusting(secured), *LOGIN, typed="prod\n\n\ny\nn\n\n")
    assert said.code == ExitCode.DONE
    assert said.err.count("ssh-keyscan -p 22 es1 es2 es3 >> ~/known") == said.err.count("ssh-keyscan") == 2
    assert "service not found" not in said.err
    assert "--known-hosts names another file" in said.err
    assert said.err.count("looking on the hosts") == 2
    assert said.out.count("host keys are known?") == 2
    assert said.out.count("SSH user of the hosts") == 1
    assert said.err.index("lab.yml: exists") < said.err.index("looking on the hosts")
    assert "Name of the file, for --cluster: " in said.out


def test_the_way_that_reaches_the_hosts_is_written(
    console: Console, secured: SecuredCluster, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """By `ssh` itself where that alone reaches hosts, as on a machine of FreeIPA; not where it loses one."""
    asked: list[Connect] = []
    away, of_the_way = "its configuration has `Match exec`", True
    reached: Mapping[Connect, str] = {}

    def look(settings: Collection[HostSettings], *_: object) -> Mapping[NodeName, Reading[FoundService]]:
        (connect,) = {one.connect for one in settings}
        asked.append(connect)
        return {
            one.node: FoundService(manager=Manager.SYSTEMD, unit="es")
            if one.node in reached[connect].split()
            else NotAsked(reason=away, key=None, of_the_way=of_the_way)
            for one in settings
        }

    monkeypatch.setattr("orchestrator.runs.first_file.find_services", look)
    ssh, openssh = Connect.SSH, Connect.OPENSSH
    for number, (by_ssh, by_openssh, given, of_the_way, written, tried) in enumerate(
        [
            ("", "es1 es2 es3", None, True, openssh, [ssh, openssh]),
            ("es2", "es1 es2", None, True, openssh, [ssh, openssh]),
            ("es1", "es2 es3", None, True, None, [ssh, openssh]),
            ("", "", None, True, None, [ssh, openssh]),
            ("", "es1 es2 es3", None, False, None, [ssh]),
            ("", "es1 es2 es3", ssh, True, ssh, [ssh]),
            ("es1 es2 es3", "es1 es2 es3", None, True, None, [ssh]),
        ]
    ):
        with subtests.test(by_ssh=by_ssh, by_openssh=by_openssh, given=given, of_the_way=of_the_way):
            asked.clear()
            reached = {ssh: by_ssh, openssh: by_openssh}
            path = console.folder / f"{number}.yml"
            words = () if given is None else ("--connect", given.value)
            said = init(console, *trusting(secured), *LOGIN, "--out", str(path), *words, "--output", "json")
            assert (said.code, asked) == (ExitCode.DONE, tried)
            text = path.read_text()
            assert re.findall(r"^  connect: (\w+)$", text, re.MULTILINE) == (
                [written.value] if written else []
            )
            assert said.lines[-1]["connect"] == (written or ssh).value
            why = "# `connect: ssh` does not reach es1" in text
            assert why is (written is openssh)
            assert not why or away in " ".join(text.replace("#", "").split())
    of_the_way, reached = True, {ssh: "es1", openssh: "es1 es2"}
    said = init(console, *trusting(secured), *LOGIN, "--out", "people.yml")
    assert "es2 can be reached by your own `ssh` alone: `connect: openssh`\n" in said.err
    assert "reached: 2 of 3 hosts with `connect: openssh`\n" in said.out


def test_a_refused_login_is_asked_for_again(console: Console, secured: SecuredCluster) -> None:
    """An API key first, which this cluster does not know; then a user. The unit is named too."""
    answers = [str(secured._certificates.ca), "", "env:ES_PASSWORD", USER, "env:ES_PASSWORD", "es-data"]
    typed = "".join(f"{answer}\n" for answer in answers)
    said = init(console, "--endpoint", secured.url, "--out", "new.yml", *HERE, typed=typed)
    assert said.code == ExitCode.DONE
    assert f"ApiKey {PASSWORD}" in [asked.headers.get("authorization") for asked in secured.asked]
    assert "refused the API key (401; secret from env:ES_PASSWORD)" in said.err
    spec = spec_of(console.folder / "new.yml")
    assert spec.auth is not None
    assert spec.auth.api_key is None
    assert spec.hosts.service.unit == "es-data"
    assert "ASSUMED" not in (console.folder / "new.yml").read_text()


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


def test_http_on_a_tls_port_names_https_and_sends_no_secret(
    console: Console, certificates: Certificates
) -> None:
    with tls_port(certificates) as (port, heard):
        said = init(console, "--endpoint", f"http://127.0.0.1:{port}", *LOGIN, *HERE)
    assert said.code == ExitCode.USAGE
    assert f"try --endpoint https://127.0.0.1:{port}" in said.err
    assert any(sent.startswith(b"GET ") for sent in heard)
    assert not any(b"authorization" in sent.lower() for sent in heard)
    assert files_of(console) == []


def test_https_is_offered_for_a_tls_port(console: Console, secured: SecuredCluster) -> None:
    endpoint, plain, *trust = trusting(secured)
    plain = plain.replace("https:", "http:")
    said = init(console, endpoint, plain, *trust, "--out", "new.yml", *LOGIN, *HERE, typed="y\n\n")
    assert said.code == ExitCode.DONE
    assert spec_of(console.folder / "new.yml").endpoints[0] == secured.url


def test_a_terminal_that_goes_away_leaves_no_file(console: Console, secured: SecuredCluster) -> None:
    for typed in ("", "\n", "\ny\nops\n", "\ny\nops\nenv:ES_PASSWORD\n"):
        assert init(console, "--endpoint", secured.url, *HERE, typed=typed).code == ExitCode.INTERRUPTED
    assert files_of(console) == []


def test_a_certificate_that_is_not_trusted_ends_it(console: Console, secured: SecuredCluster) -> None:
    said = init(console, "--endpoint", secured.url, *LOGIN, *HERE, typed="\nn\n")
    assert said.code == ExitCode.USAGE
    refusal = f"orchestrate: the certificate of {secured.url} is not trusted: nothing is written\n"
    assert said.err.endswith(refusal)
    assert files_of(console) == []
    assert secured.asked == []  # neither a request nor a credential was sent


def test_a_form_that_is_refused_is_accepted_or_pinned(console: Console, tmp_path: Path) -> None:
    """With certificates as of elasticsearch-certutil; strictness is never dropped without a word."""
    certificates = Certificates(tmp_path / "tls", key_usage=False)
    broken = "breaks a rule of RFC 5280 (CA cert does not include key usage extension)"
    with SecuredCluster(certificates) as cluster:
        given = (*trusting(cluster), *LOGIN, *HERE)
        said = init(console, *given, "--out", "no.yml")
        assert (said.code, cluster.asked) == (ExitCode.USAGE, [])
        shown = f"SHA-256 {fingerprint_shown(certificates)}). Issue a new one, accept such certificates of"
        for words in (broken, shown, "--no-strict, or compare the fingerprint", "--fingerprint SHA256"):
            assert words in said.err
        assert init(console, *given, "--out", "no.yml", typed="n\nn\n").code == ExitCode.USAGE
        assert init(console, *given, "--out", "given.yml", "--no-strict").code == ExitCode.DONE
        said = init(console, *given, "--out", "typed.yml", typed="y\n\n")
        assert f"or that of its authority, {broken}:" in said.err
        assert init(console, *given, "--out", "pinned.yml", typed="n\ny\n\n").code == ExitCode.DONE
        found = {path.stem: spec_of(path).tls for path in console.folder.glob("*.yml")}
    ca = str(certificates.ca)
    assert found == {
        "given": TlsSpec(ca=ca, strict=False),
        "typed": TlsSpec(ca=ca, strict=False),
        "pinned": TlsSpec(fingerprint=fingerprint_shown(certificates)),
    }


def test_a_node_with_an_unpinned_certificate_is_no_endpoint(
    console: Console, certificates: Certificates, strangers: Certificates
) -> None:
    with SecuredCluster(certificates, {"es3": strangers}) as cluster:
        pinned = ("--endpoint", cluster.url, "--fingerprint", fingerprint_of(certificates))
        said = init(console, *pinned, "--out", "new.yml", *LOGIN, *HERE)
        assert said.code == ExitCode.DONE
        file = console.folder / "new.yml"
        assert spec_of(file).endpoints == (cluster.url, f"https://{cluster.places['es2']}")
    refused = f"the certificate of https://{cluster.places['es3']} is not the one of"
    assert f"warning: no endpoint of es3: {refused} --fingerprint" in said.err
    comments = " ".join(file.read_text().replace("#", " ").split())
    assert f"No endpoint of es3: {refused} `tls.fingerprint`" in comments


def always(server: SmallCluster, answer: Answerer, path: str = "") -> None:
    for each in list(server.answers):
        if each.startswith(path):
            server.on(each, answer)


STATE = "/_cluster/state"
OTHERWISE: dict[str, Callable[[SmallCluster], object]] = {
    "no_master": SmallCluster.without_a_master,
    "named": lambda small: always(
        small, reply(small._state() | {"cluster_name": "my prod"}), "/_cluster/state"
    ),
    "refused": lambda small: always(small, REFUSED),
    "no_json": lambda small: always(small, reply(b"<html>", headers={})),
    "couch": lambda small: always(small, reply({"couchdb": "Welcome"}, headers={})),
    "new": lambda small: small.versions.update(dict.fromkeys(small.versions, "10.0.0")),
}
"""How the small cluster answers in a case of `tests/data/cli/init_refused.txt`, by the word behind `by`."""


def test_bad_input_is_one_message_and_nothing_is_written(
    console: Console, secured: SecuredCluster, strangers: Certificates, subtests: pytest.Subtests
) -> None:
    at_home = console.home / ".config" / "orchestrate" / "clusters"
    at_home.mkdir(parents=True)
    kept = [console.folder / "there.yml", at_home / "taken.yml", at_home / "lab.yml"]
    for path in kept:
        path.write_text("kept\n")
    before = files_of(console)
    for case, (says,) in cases("cli/init_refused.txt"):
        line, _, otherwise = case.removesuffix("\n").partition("\nby ")
        with subtests.test(line=line, says=says), SmallCluster() as small:
            if otherwise:
                OTHERWISE[otherwise](small)
            places = {
                "folder": console.folder,
                "small": f"--endpoint {small.url}",
                "tls": f"--endpoint {secured.url}",
                "trusted": " ".join(trusting(secured)),
                "login": " ".join(LOGIN),
                "stranger": strangers.ca,
                "closed": free_port(),
            }
            said = init(console, *shlex.split(line.format(**places)))
            lines = [one for one in said.err.splitlines() if not one.startswith(("warning: ", "found: "))]
            assert (said.code, said.out, len(lines)) == (ExitCode.USAGE, "", 1), said
            assert re.fullmatch(pattern(says.format(folder=console.folder), console), f"{lines[0]}\n"), lines
            assert files_of(console) == before
            assert {path.read_text() for path in kept} == {"kept\n"}


def test_messages_name_options_that_set_keys_of_the_file() -> None:
    known = {key.path: key.takes for key in keys()}
    flags = typer.main.get_command(app).commands["init"].params  # type: ignore[attr-defined]  # a group
    options = {name for flag in flags for name in (*flag.opts, *flag.secondary_opts)}
    for key, option in _OPTIONS.items():
        path, _, value = key.partition(": ")
        assert path in known
        assert value in known[path]
        assert option in options


@pytest.fixture
def no_root() -> Iterator[None]:
    """Root may write everywhere."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    yield
    os.seteuid(was)


def test_without_the_right_to_write_the_cluster_is_not_read(
    cluster: SmallCluster, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o555)
        request.getfixturevalue("no_root")
        code = run(["init", "--endpoint", cluster.url, "--out", f"{place}/sub/new.yml"])
        os.seteuid(os.getuid())
        assert (code, cluster.asked, list(Path(place).iterdir())) == (ExitCode.USAGE, [], [])
    said = capsys.readouterr().err
    assert said == (f"orchestrate: {place}/sub/new.yml: cannot be written: no right to write in {place}\n")
