"""The way to a host, from settings and SSH configuration."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest

from orchestrator.hosts.connections.ssh.config_file import RouteError, read_config
from orchestrator.hosts.connections.ssh.route import Hop, find_route
from orchestrator.hosts.settings import HostSettings

CONFIG = """
Host es1
  HostName 10.0.0.1
  Port 2201
  User deploy
  IdentityFile /keys/es
  IdentitiesOnly yes
  HostKeyAlias es-one
  ProxyJump ops@bastion:2222
Host bastion
  HostName bastion.example.org
  ProxyJump gate
Host gate
  User guard
Host two
  ProxyJump gate,[::1]:2200
Host none
  ProxyJump none
Host circle
  ProxyJump circle
Host wrong
  ProxyJump a:b
Host far
  ProxyJump a:99999
Host text
  Port ssh
Host behind
  ProxyJump gate,text
Host zero
  Port 0
Host *
  User anybody
"""


def route(address: str, **changes: object) -> list[str]:
    settings = HostSettings(node="n", address=address, **changes)
    return [str(hop) for hop in find_route(settings, paramiko.SSHConfig.from_text(CONFIG))]


@pytest.mark.parametrize(
    ("address", "hops"),
    [
        ("plain", ["anybody@plain:22"]),
        ("es1", ["guard@gate:22", "ops@bastion.example.org:2222", "deploy@10.0.0.1:2201"]),
        ("two", ["guard@gate:22", "anybody@::1:2200", "anybody@two:22"]),
        ("none", ["anybody@none:22"]),
    ],
)
def test_routes(address: str, hops: list[str]) -> None:
    assert route(address) == hops


def test_the_cluster_file_beats_the_configuration() -> None:
    assert route("es1", user="root", port=22)[-1] == "root@10.0.0.1:22"


def test_the_rest_of_a_hop_comes_from_the_configuration() -> None:
    settings = HostSettings(node="n", address="es1", identities=("/keys/mine",), known_hosts=("/known",))
    *_, hop = find_route(settings, paramiko.SSHConfig.from_text(CONFIG))
    assert hop.identities == ("/keys/mine", "/keys/es")
    assert hop.identities_only
    assert hop.key_names == ("es-one",)
    assert hop.known_hosts == ("/known",)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("circle", "circles"),
        ("wrong", "'a:b' of wrong must be a port"),
        ("far", "'a:99999' of far must be a port"),
        ("text", "`Port ssh` of text must be a port"),
        ("behind", "`Port ssh` of text must be a port"),
        ("zero", "`Port 0` of zero must be a port"),
    ],
)
def test_what_cannot_be_followed_is_said(address: str, words: str) -> None:
    with pytest.raises(RouteError, match=words):
        route(address)


def test_the_files_of_host_keys_are_those_that_ssh_would_read() -> None:
    def files(text: str) -> tuple[str, ...]:
        settings = HostSettings(node="n", address="es1")
        return find_route(settings, paramiko.SSHConfig.from_text(text))[-1].known_hosts

    system = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
    assert files("") == ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", *system)
    assert files("UserKnownHostsFile /a /b") == ("/a", "/b", *system)
    assert files("UserKnownHostsFile /a\nGlobalKnownHostsFile /c") == ("/a", "/c")


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `~/.ssh` of a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "conf.d").mkdir(parents=True)
    return tmp_path / ".ssh"


def target(address: str = "es1") -> Hop:
    settings = HostSettings(node="n", address=address)
    return find_route(settings, read_config(settings.ssh_config))[-1]


def test_included_files_count_where_they_stand(ssh: Path) -> None:
    (ssh / "config").write_text(
        """
Include conf.d/*.conf "~/.ssh/other one" no-such-file  # as many as one likes
User everybody
Host es1
  include=under-es1
  Port 9
Host *
  Port 8
  Include last
"""
    )
    (ssh / "conf.d" / "10.conf").write_text("Host es2\n User two\n Include nested\n Port 7\n")
    (ssh / "conf.d" / "20.conf").write_text("Host es3\n HostName ten\n")
    (ssh / "conf.d" / "30.other").write_text("Host *\n User nobody\n")
    (ssh / "nested").write_text("HostKeyAlias nest\n")
    (ssh / "other one").write_text("Host es4\n HostName four\n")
    (ssh / "under-es1").write_text("HostName one\n")
    (ssh / "last").write_text("Host es5\n HostName five\nHost es6\n HostName six\n")
    found = [str(target(f"es{number}")) for number in range(1, 7)]
    assert found == [
        "everybody@one:9",
        "two@es2:7",
        "everybody@ten:8",
        "everybody@four:8",
        "everybody@five:8",
        "everybody@six:8",
    ]
    assert [target("es2").key_names, target("es3").key_names] == [("nest",), ("[ten]:8", "ten")]


def test_an_include_that_cannot_be_followed_is_said(ssh: Path) -> None:
    (ssh / "config").write_text("Include config\n")
    with pytest.raises(RouteError, match="circles"):
        target()
    (ssh / "config").write_text("Host es1\n Include inner\n")
    (ssh / "inner").write_text("User a\nHost es2\n User b\n")
    with pytest.raises(RouteError, match=r"inner:2: `Host es2` in a file that is included under `Host es1`"):
        target()


def test_the_systems_configuration_comes_after_the_users(ssh: Path, tmp_path: Path) -> None:
    """As in `ssh`: the first value counts, and a block of the one file does not reach into the other."""
    (ssh / "config").write_text("User everybody\nHost es1\n Port 9\n")
    system = tmp_path / "ssh_config"
    system.write_text(
        f"HostName of-the-system\nInclude {tmp_path}/ssh_config.d/*.conf\nHost *\n Port 8\n User root\n"
    )
    (tmp_path / "ssh_config.d").mkdir()
    (tmp_path / "ssh_config.d" / "10.conf").write_text("Host es2\n ProxyJump bastion\n")

    def found(address: str, *files: Path) -> list[str]:
        settings = HostSettings(node="n", address=address, ssh_config=tuple(map(str, files)))
        return [str(hop) for hop in find_route(settings, read_config(settings.ssh_config))]

    assert found("es1", ssh / "config", system) == ["everybody@of-the-system:9"]
    assert found("es2", ssh / "config", system)[-1] == "everybody@of-the-system:8"
    assert len(found("es2", ssh / "config", system)) == 2
    assert found("es2", ssh / "absent", system)[-1] == "root@of-the-system:8"
    assert HostSettings(node="n", address="es1").ssh_config == ("~/.ssh/config", "/etc/ssh/ssh_config")


FEDORA = """
# As /etc/ssh/ssh_config.d/50-redhat.conf of openssh-clients has it.
Match final all
\tInclude {folder}/crypto-policies
\tGSSAPIAuthentication yes
\tForwardX11Trusted yes
\tSendEnv LANG LC_CTYPE
"""


def test_the_configuration_that_fedora_and_rhel_ship_is_read(ssh: Path) -> None:
    (ssh / "crypto-policies").write_text("Port 2022\nUser of-the-system\n")
    (ssh / "config").write_text("Host es1\n User ops\n" + FEDORA.format(folder=ssh))
    assert str(target()) == "ops@es1:2022"


@pytest.mark.parametrize(
    ("line", "criterion"),
    [
        ("Match exec true", "exec"),
        ("Match host es1 !exec 'test -e /x'", "exec"),
        ("Match tagged work", "tagged"),
        ("match localnetwork=10.0.0.0/8", "localnetwork"),
    ],
)
def test_a_criterion_only_ssh_can_evaluate_is_refused(ssh: Path, line: str, criterion: str) -> None:
    """Of a criterion that paramiko does not have, it said that it is met."""
    (ssh / "config").write_text(f"{line}\n User other\n")
    with pytest.raises(RouteError, match=rf"es1 has `Match {criterion}`.*`hosts.connect: openssh`"):
        target()
    (ssh / "config").write_text(
        f"{line.replace('atch ', 'atch host es2 ', 1)}\n User other\nHost *\n User ops\n"
    )
    assert target().user == "ops"


def test_a_configuration_in_another_encoding_is_read(ssh: Path) -> None:
    (ssh / "config").write_bytes(b"# caf\xe9\nHost es1\n User ops\n")
    assert target().user == "ops"


def expanded(ssh: Path, text: str, address: str = "es1") -> Hop:
    (ssh / "config").write_text(text)
    return target(address)


@pytest.mark.parametrize(
    ("text", "address", "command"),
    [
        (
            "ProxyCommand ssh -W %h:%p bastion\nHostName %h.example\nPort 9\n",
            "es1",
            "ssh -W es1.example:9 bastion",
        ),
        ("ProxyCommand nc -X %r %h %p\nUser EXAMPLE\\deploy\n", "es1", "nc -X EXAMPLE\\deploy es1 22"),
        ("ProxyCommand nc %h 100%% %%h\n", "es1", "nc es1 100% %h"),
        # Names of interfaces that would be tokens themselves.
        ("ProxyCommand nc %h %p\n", "fe80::1%p1p1", "nc fe80::1%p1p1 22"),
        ("ProxyCommand nc %h %p\n", "fe80::1%hsn0", "nc fe80::1%hsn0 22"),
    ],
)
def test_tokens_are_expanded_once(ssh: Path, text: str, address: str, command: str) -> None:
    hop = expanded(ssh, text, address)
    assert hop.proxy_command == command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ProxyCommand ssh -W %h:%p bastion\nHostName a -oProxyCommand=x\n",
            "neither an IP address nor a host",
        ),
        ("HostName -oProxyCommand=x\n", "neither an IP address nor a host name"),
        ("HostName %h;id\n", "neither an IP address nor a host name"),
        ("HostName %h.%h.%n\n", "neither an IP address nor a host name"),
        ("ProxyCommand nc %r\nUser a -x\n", "'a -x' cannot be the name of an account"),
        ("User -oProxyCommand=x\n", "cannot be the name of an account"),
        ("User $(id)\n", "cannot be the name of an account"),
        ("ProxyCommand nc %h %p\nPort 22 -x\n", "`Port 22 -x` is no port"),
        ("ProxyJump a;b\n", "'a;b' is neither an IP address nor a host name"),
        ("ProxyJump -oProxyCommand=x\n", "neither an IP address nor a host name"),
        ("ProxyJump a$b@gate\n", "'a$b' cannot be the name of an account"),
        ("ProxyJump -l@gate\n", "'-l' cannot be the name of an account"),
        (
            "ProxyJump %h..\n",
            "neither an IP address nor a host name",
        ),
    ],
)
def test_a_bad_host_or_user_of_the_configuration_is_named(ssh: Path, text: str, words: str) -> None:
    with pytest.raises(RouteError) as caught:
        expanded(ssh, text)
    assert words in str(caught.value)
    assert "es1" in str(caught.value)


def test_the_cluster_file_has_another_user_than_the_token(ssh: Path) -> None:
    """`%r` is the user of the SSH configuration, which is checked although the run logs in as another one."""
    (ssh / "config").write_text("ProxyCommand nc %r\nUser a -x\n")
    settings = HostSettings(node="n", address="es1", user="root")
    with pytest.raises(RouteError, match="cannot be the name of an account"):
        find_route(settings, read_config(settings.ssh_config))


def test_the_name_of_this_account_is_checked(ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from the environment."""
    monkeypatch.setenv("LOGNAME", "-oProxyCommand=x")
    with pytest.raises(RouteError, match="cannot be the name of an account"):
        expanded(ssh, "Port 22\n")


def test_a_host_without_an_address_is_no_host() -> None:
    with pytest.raises(RouteError, match="neither an IP address nor a host name"):
        route("")
