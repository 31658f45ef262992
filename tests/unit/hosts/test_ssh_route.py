"""The way to a host, from settings and SSH configuration."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.hosts.connections.ssh_route import Hop, RouteError, Stage, chosen, find_route, read_config
from orchestrator.model.host_settings import HostSettings
from tests.fakes.cases import cases
from tests.tools import needs

INCLUDED = {
    "conf.d/10.conf": "Host es2\n User two\n Include nested\n Port 7\n",
    "conf.d/20.conf": "Host es3\n HostName ten\n",
    "conf.d/30.other": "Host *\n User nobody\n",
    "nested": "HostKeyAlias nest\n",
    "other one": "Host es4\n HostName four\n",
    "under-es1": "HostName one\n",
    "last": "Host es5\n HostName five\nHost es6\n HostName six\n",
    "inner": "User a\nHost es2\n User b\n",
    "crypto-policies": "Port 2022\nUser of-the-system\n",
}
"""Files beside `~/.ssh/config` that the cases include."""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `~/.ssh` of a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "conf.d").mkdir(parents=True)
    for name, text in INCLUDED.items():
        (tmp_path / ".ssh" / name).write_text(text)
    return tmp_path / ".ssh"


def route(address: str = "es1", **changes: object) -> list[Hop]:
    """Without the configuration of this machine."""
    settings = HostSettings(node="n", address=address, **{"ssh_config": ("~/.ssh/config",), **changes})
    return list(find_route(settings, read_config(settings.ssh_config)))


def shown(hops: list[Hop]) -> str:
    """The hops, and the command by which the last one is reached."""
    command = hops[-1].proxy_command
    return " ".join(map(str, hops)) + (f" by {command}" if command else "")


def test_routes_of_a_configuration(subtests: pytest.Subtests, ssh: Path) -> None:
    """Every fault names the host of which it is."""
    for text, expected in cases("hosts/ssh_configs.txt"):
        (ssh / "config").write_text(text)
        for line in expected:
            with subtests.test(text=text, line=line):
                if "! " not in line:
                    address, _, hops = line.partition(": ")
                    assert shown(route(address)) == hops
                    continue
                address, _, words = line.partition("! ")
                with pytest.raises(RouteError) as caught:
                    route(address)
                assert words in str(caught.value)
                assert address != "es1" or words == "circles" or "es1" in str(caught.value)


def test_the_cluster_file_beats_the_configuration(ssh: Path) -> None:
    (ssh / "config").write_text(
        "HostName 10.0.0.1\nPort 2201\nUser deploy\n"
        "IdentityFile /keys/es\nIdentitiesOnly yes\nHostKeyAlias one\n"
    )
    assert shown(route(user="root", port=22)) == "root@10.0.0.1:22"
    (hop,) = route(identities=("/keys/mine",), known_hosts=("/known",))
    assert hop.identities == ("/keys/mine", "/keys/es")
    assert hop.identities_only
    assert hop.key_names == ("one",)
    assert hop.known_hosts == ("/known",)
    # `%r` is the user of the configuration, which is checked although the run logs in as another one.
    (ssh / "config").write_text("ProxyCommand nc %r\nUser a -x\n")
    with pytest.raises(RouteError, match="cannot be the name of an account"):
        route(user="root")


def test_names_of_host_keys_and_their_files(ssh: Path) -> None:
    """The files are those that `ssh` would read."""
    (ssh / "config").write_text("Include conf.d/*.conf\n")
    assert route("es2")[-1].key_names == ("nest",)
    (ssh / "config").write_text("Include conf.d/*.conf\nPort 8\n")
    assert route("es3")[-1].key_names == ("[ten]:8", "ten")
    system = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
    for text, files in {
        "": ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", *system),
        "UserKnownHostsFile /a /b": ("/a", "/b", *system),
        "UserKnownHostsFile /a\nGlobalKnownHostsFile /c": ("/a", "/c"),
    }.items():
        (ssh / "config").write_text(text)
        assert route()[-1].known_hosts == files


def test_the_systems_configuration_comes_after_the_users(ssh: Path, tmp_path: Path) -> None:
    """As in `ssh`: the first value counts, and a block of the one file does not reach into the other."""
    user, system = ssh / "config", tmp_path / "ssh_config"
    user.write_text("User everybody\nHost es1\n Port 9\n")
    folder = tmp_path / "ssh_config.d"
    system.write_text(f"HostName of-the-system\nInclude {folder}/*.conf\nHost *\n Port 8\n User root\n")
    folder.mkdir()
    (folder / "10.conf").write_text("Host es2\n ProxyJump bastion\n")

    def found(address: str, *files: Path) -> list[str]:
        return [str(hop) for hop in route(address, ssh_config=tuple(map(str, files)))]

    assert found("es1", user, system) == ["everybody@of-the-system:9"]
    assert found("es2", user, system)[-1] == "everybody@of-the-system:8"
    assert len(found("es2", user, system)) == 2
    assert found("es2", ssh / "absent", system)[-1] == "root@of-the-system:8"
    assert HostSettings(node="n", address="es1").ssh_config == ("~/.ssh/config", "/etc/ssh/ssh_config")


def test_what_ssh_itself_prints_refuses_no_host(ssh: Path) -> None:
    """Its defaults, by every keyword that it has, have no effect or are followed."""
    said = subprocess.run(  # noqa: S603
        [needs("ssh"), "-F", "/dev/null", "-G", "es1"], check=True, capture_output=True, text=True
    ).stdout
    (ssh / "config").write_text(said)
    (hop,) = route()
    assert hop.host == "es1"
    assert {line.partition(" ")[0] for stage, line in hop.unfollowed if stage is not Stage.LOG_IN} == set()


def test_what_is_not_followed_is_kept_for_its_stage(ssh: Path) -> None:
    lines = {
        Stage.CONNECT: ("AddressFamily inet6", "BindAddress 10.0.0.1"),
        Stage.HOST_KEY: ("VerifyHostKeyDNS ask", "GSSAPIKeyExchange yes"),
        Stage.LOG_IN: ("PKCS11Provider /usr/lib/p11.so", "CertificateFile ~/.ssh/id-cert.pub"),
    }
    idle = "AddressFamily any\nVerifyHostKeyDNS no\nIdentityAgent none\nPKCS11Provider none\n"
    (ssh / "config").write_text(
        f"Host es2\n{idle}Host *\n" + "".join(f"{line}\n" for some in lines.values() for line in some)
    )
    every = tuple((stage, line) for stage, some in lines.items() for line in some)
    assert route()[-1].unfollowed == every
    kept = [line for _, line in route("es2")[-1].unfollowed]
    assert kept == ["BindAddress 10.0.0.1", "GSSAPIKeyExchange yes", "CertificateFile ~/.ssh/id-cert.pub"]
    assert (route()[-1].use_agent, route("es2")[-1].use_agent) == (True, False)


def test_known_hosts_of_the_cluster_file_are_all(ssh: Path) -> None:
    """A command or a record of the configuration that adds keys has no effect then; a revocation has."""
    (ssh / "config").write_text("KnownHostsCommand x\nVerifyHostKeyDNS yes\nUserKnownHostsFile %d/k\n")
    (hop,) = route(known_hosts=("/known",))
    assert (hop.known_hosts, hop.unfollowed) == (("/known",), ())
    (ssh / "config").write_text("RevokedHostKeys /revoked\n")
    with pytest.raises(RouteError, match="RevokedHostKeys /revoked"):
        route(known_hosts=("/known",))


def test_algorithms_that_a_list_leaves() -> None:
    ours = ("ssh-ed25519", "rsa-sha2-512", "ssh-rsa")
    for listed, left in {
        "": ours,
        "+ssh-dss": ours,
        "^ssh-rsa": ours,
        "-ssh-rsa": ours[:2],
        "-*rsa*": ours[:1],
        "ssh-rsa,ssh-ed25519*": (ours[0], ours[2]),
        "ecdsa-sha2-nistp256": (),
    }.items():
        assert chosen(ours, listed) == left, listed


def test_a_configuration_in_another_encoding_is_read(ssh: Path) -> None:
    (ssh / "config").write_bytes(b"# caf\xe9\nHost es1\n User ops\n")
    assert route()[-1].user == "ops"


def test_the_name_of_this_account_is_checked(ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from the environment."""
    monkeypatch.setenv("LOGNAME", "-oProxyCommand=x")
    (ssh / "config").write_text("Port 22\n")
    with pytest.raises(RouteError, match="cannot be the name of an account"):
        route()


@pytest.mark.usefixtures("ssh")
def test_a_host_without_an_address_is_no_host() -> None:
    with pytest.raises(RouteError, match="neither an IP address nor a host name"):
        route("")
