"""Programs that tests run and a machine may lack."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from typing import Final, NoReturn

import pytest

ALL_TOOLS: Final = "ORCHESTRATE_ALL_TOOLS"
"""The variable that `make test` sets: every program is there, so a missing one fails its tests."""
SHELLS: Final = ("dash", "bash", "busybox")
"""What `/bin/sh` of a host may be."""
_FOLDERS: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Not on the PATH of every user."""
_PACKAGES: Final = {
    "/usr/lib/rabbitmq/bin/rabbitmq-server": "rabbitmq-server",
    "chromedriver": "chromium-driver",
    "epmd": "erlang-base",
    "ps": "procps",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "ssh": "openssh-client",
    "ssh-add": "openssh-client",
    "ssh-agent": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "systemd-analyze": "systemd",
    "visudo": "sudo",
}
"""Debian's packages, where the name is another one."""


def needs(program: str) -> str:
    """The path of a program. Without it the test is skipped, and the summary of pytest names the program."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{_FOLDERS}")
    if path is None:
        lacking(f"{program} is not on this machine: apt-get install {_PACKAGES.get(program, program)}")
    return path


def lacking(reason: str) -> NoReturn:
    """Skip the test for what the machine lacks; fail it where everything has to be there."""
    if os.environ.get(ALL_TOOLS) == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def shell_words(name: str) -> list[str]:
    """The command that starts one of `SHELLS`."""
    return [needs(name), "sh"] if name == "busybox" else [needs(name)]


def by_shell(name: str, script: str) -> str:
    """A command line that runs a script under one of `SHELLS`."""
    return f"exec {shlex.join(shell_words(name))} -c {shlex.quote(script)}"


def as_nobody() -> tuple[str, ...]:
    """A command that starts a program without the rights of root."""
    return () if os.getuid() else (needs("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups")


def heeding_modes() -> tuple[str, ...]:
    """A command that starts a program to which files of mode 000 are closed, also for root."""
    return () if os.getuid() else (needs("setpriv"), "--bounding-set", "-dac_override,-dac_read_search")


def own_mounts() -> tuple[str, ...]:
    """A command that starts a program whose mounts nobody else sees."""
    words = (needs("unshare"), "--map-root-user", "--mount")
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)  # noqa: S603  (our own)
    if tried.returncode != 0:
        lacking(f"a user may not have mounts of its own here: {tried.stderr.strip()}")
    return words
