"""The docker command, with a limit on every call."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from tests.lab.errors import LabError

COMMAND_SECONDS = 120.0
SKIP_VARIABLE = "SKIP_REAL"


def run(
    command: Sequence[str], *, seconds: float = COMMAND_SECONDS, check: bool = True, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and keep what it says.

    Raises:
        LabError: it failed and `check` is set, or it did not end in time.
    """
    try:
        done = subprocess.run(  # noqa: S603  (the lab's own commands)
            command, capture_output=True, text=True, timeout=seconds, check=False, input=stdin
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(command)} did not end in {seconds:.0f} s") from error
    except FileNotFoundError as error:
        raise LabError(f"there is no {command[0]} on the PATH: run .ci/prepare") from error
    if check and done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise LabError(f"{' '.join(command)} failed with status {done.returncode}: {said}")
    return done


def require_engine() -> None:
    """Check that an engine answers.

    Raises:
        LabError: none does; the message says what to do.
    """
    answer = run(("docker", "info", "--format", "{{.ServerVersion}}"), check=False)
    if answer.returncode != 0 or not answer.stdout.strip():
        raise LabError(
            "these tests need a Docker engine, and none answers: run .ci/prepare (as root on Debian it "
            f"installs and starts one), or leave them out, visibly, with {SKIP_VARIABLE}=1. "
            f"docker info said: {(answer.stderr or answer.stdout).strip()[-400:]}"
        )


def unwanted() -> bool:
    """Whether the user has asked to leave out the tests on real hosts."""
    return os.environ.get(SKIP_VARIABLE) == "1"


def compose_command() -> str:
    """Compose as there is one: the plugin (version 2), else the older command of its own.

    Raises:
        LabError: there is neither.
    """
    if run(("docker", "compose", "version"), check=False).returncode == 0:
        return "docker compose"
    if shutil.which("docker-compose"):
        return "docker-compose"
    raise LabError("there is neither `docker compose` nor docker-compose: run .ci/prepare")


def cgroup_version() -> str:
    """`1` or `2`, as the engine sees the machine."""
    return run(("docker", "info", "--format", "{{.CgroupVersion}}")).stdout.strip() or "1"
