"""The keys offered to an SSH server: key files and the agent's keys, in the same order as `ssh`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import paramiko
from paramiko.auth_strategy import AuthSource, AuthStrategy, InMemoryPrivateKey, OnDiskPrivateKey
from paramiko.pkey import PublicBlob, UnknownKeyType

from orchestrator.hosts.connections.ssh.route import Hop


class KeyStrategy(AuthStrategy):
    """Public keys only: agent keys that a key file names first, then the files, then other agent keys.

    Servers close the connection after a few tries (`MaxAuthTries`, 6), so an agent full of keys must not go
    first.

    Attributes:
        notes: why a key was not offered at all, for the message.
    """

    def __init__(self, hop: Hop) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._hop = hop
        self._agent: paramiko.Agent | None = None
        self.notes: list[str] = []

    def get_sources(self) -> Iterator[AuthSource]:
        """Yield the keys in the order in which they are offered."""
        user = self._hop.user
        agent_keys = self._agent_keys()
        named = {blob for path in self._hop.identities if (blob := _public_part(path)) is not None}
        for key in agent_keys:
            if key.asbytes() in named:
                yield InMemoryPrivateKey(user, key)
        held = {key.asbytes() for key in agent_keys}
        for path in self._hop.identities:
            if _public_part(path) in held:
                continue  # the agent has already offered it
            loaded = self._load(path)
            if loaded is not None:
                yield OnDiskPrivateKey(user, "ssh-config", Path(path).expanduser(), loaded)
        if not self._hop.identities_only:
            for key in agent_keys:
                if key.asbytes() not in named:
                    yield InMemoryPrivateKey(user, key)

    def close(self) -> None:
        """Close the connection to the agent."""
        if self._agent is not None:
            self._agent.close()

    def _agent_keys(self) -> tuple[paramiko.AgentKey, ...]:
        if not self._hop.use_agent:
            return ()
        try:
            self._agent = paramiko.Agent()
            return self._agent.get_keys()
        except (paramiko.SSHException, OSError) as error:
            self.notes.append(f"agent: {error}")
            return ()

    def _load(self, path: str) -> paramiko.PKey | None:
        file = Path(path).expanduser()
        if not file.is_file():
            self.notes.append(f"{path}: no such file")
            return None
        try:
            return paramiko.PKey.from_path(file)
        except (paramiko.PasswordRequiredException, TypeError):
            # cryptography raises TypeError for a PEM key that needs a passphrase.
            self.notes.append(f"{path}: has a passphrase; add it to an agent (ssh-add)")
        except (paramiko.SSHException, UnknownKeyType, OSError, ValueError) as error:
            self.notes.append(f"{path}: {error}")
        return None


def _public_part(path: str) -> bytes | None:
    """The public key beside a private key file; None if there is no readable one."""
    file = Path(f"{path}.pub").expanduser()
    try:
        fields = file.read_text(encoding="utf-8").split()
        return PublicBlob.from_string(" ".join(fields[:2])).key_blob
    except (OSError, ValueError, IndexError):
        return None
