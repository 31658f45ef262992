"""Three hosts that plain SSH does not reach, and the configuration of an operator whose own `ssh` does."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from tests.integration.hostlab.hosts import HostCluster
from tests.integration.mistuned import put
from tests.integration.sshd import make_key, tool

OLD = """
KexAlgorithms diffie-hellman-group14-sha1
HostKeyAlgorithms ssh-rsa
PubkeyAcceptedAlgorithms ssh-rsa
Ciphers aes128-ctr
MACs hmac-sha1
"""
"""What a server of 2010 has."""
_OWN_HOME = 'mount --bind "$0" /etc/passwd && exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """Makes the three hosts so.

    Attributes:
        folder: the operator's home.
        cluster: the first host lets in only who comes from the second; the second shows a certificate, and
            only its authority is known; the third is old.
    """

    folder: Path
    cluster: HostCluster

    def guard(self) -> Path:
        """Close the hosts to all but such an operator; the file of known hosts."""
        behind, certified, old = self.cluster.hosts
        known = dict(line.split(" ", 1) for line in self.cluster.known_hosts.read_text().splitlines())
        plain = f"{behind.address} {known[f'{behind.address},{behind.name}']}"
        authority = make_key(self.folder / "authority")
        public = self.cluster.exec(certified.name, "cat /etc/ssh/ssh_host_ed25519_key.pub").stdout
        file = self.folder / "certified.pub"
        file.write_text(public)
        of_host = ("-h", "-I", certified.name, "-n", certified.address)
        tool("ssh-keygen", "-q", "-s", str(authority), *of_host, str(file))
        certificate = "/etc/ssh/ssh_host_ed25519_key-cert.pub"
        put(self.cluster, certified.name, certificate, file.with_name("certified-cert.pub").read_text())
        rsa = make_key(self.folder / "id_rsa", kind="rsa")
        own = rsa.with_suffix(".pub").read_text()
        put(self.cluster, old.name, f"/home/{self.cluster.ssh_user}/.ssh/authorized_keys", own)
        shown = self.cluster.exec(old.name, "cat /etc/ssh/ssh_host_rsa_key.pub").stdout
        for name, lines in (
            (certified.name, f"HostCertificate {certificate}\n"),
            (behind.name, f"AllowUsers {self.cluster.ssh_user}@{certified.address}\n"),
            (old.name, OLD),
        ):
            put(self.cluster, name, "/etc/ssh/sshd_config.d/a-guard.conf", lines)
            self.cluster.exec(name, "sshd -t && systemctl restart ssh")
        self._configure(behind.address, certified.address, old.address, rsa)
        known_hosts = self.folder / "known_hosts"
        by_authority = f"@cert-authority {certified.address} {authority.with_suffix('.pub').read_text()}"
        known_hosts.write_text(f"{plain}\n{by_authority}{old.address} {shown}")
        return known_hosts

    def _configure(self, behind: str, certified: str, old: str, rsa: Path) -> None:
        config = self.folder / ".ssh" / "config"
        config.parent.mkdir(mode=0o700)
        config.write_text(
            f"Host {behind}\n  ProxyJump {self.cluster.ssh_user}@{certified}\n"
            f"Host {old}\n  IdentityFile {rsa}\n  KexAlgorithms +diffie-hellman-group14-sha1\n"
            "  HostKeyAlgorithms +ssh-rsa\n  PubkeyAcceptedAlgorithms +ssh-rsa\n  MACs +hmac-sha1\n"
        )
        config.chmod(0o600)

    def at_home(self) -> tuple[str, ...]:
        """A command that gives a program the folder as its account's home: `ssh` heeds no `HOME`."""
        account = pwd.getpwuid(os.geteuid())
        fields = (account.pw_name, "x", account.pw_uid, account.pw_gid, "", self.folder, "/bin/sh")
        passwd = self.folder / "passwd"
        passwd.write_text(":".join(map(str, fields)) + "\n")
        as_root = () if os.geteuid() == 0 else ("--user", "--map-current-user", "--keep-caps")
        return ("unshare", *as_root, "--mount", "sh", "-c", _OWN_HOME, str(passwd))
