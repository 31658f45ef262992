"""A compose project of the lab: one at a time on a machine, and ended whatever happens."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_docker.plugin import get_docker_services

from tests.integration.hostlab import docker
from tests.lab.distributions import Progress, cache_folder
from tests.lab.errors import LabError

LOCK_SECONDS = 3600.0
LOCK_POLL_SECONDS = 1.0


@contextmanager
def alone(lock: str, progress: Progress) -> Iterator[None]:
    """Hold the machine's one place for such hosts; the kernel frees it with the process.

    Raises:
        LabError: another lab has held it for an hour.
    """
    cache_folder().mkdir(parents=True, exist_ok=True)
    limit = time.monotonic() + LOCK_SECONDS
    with (cache_folder() / lock).open("w", encoding="utf-8") as handle:
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise LabError("another lab has held this machine's hosts for an hour") from None
                if not told:
                    progress("waiting for another lab on this machine to end")
                    told = True
                time.sleep(LOCK_POLL_SECONDS)
                continue
            yield
            return


def write_environment(file: Path, variables: Mapping[str, str]) -> None:
    """Write what the Compose file leaves open."""
    file.write_text("".join(f"{key}={value}\n" for key, value in variables.items()), encoding="utf-8")


@contextmanager
def project(
    name: str,
    hosts: list[str],
    *,
    folder: Path,
    overlays: Sequence[str] = (),
    environment: Path,
    progress: Progress,
) -> Iterator[None]:
    """The project while it is up, ended also when it does not come up; what a killed run left goes first.

    Args:
        name: of the project.
        hosts: names of the services to start.
        folder: with `compose.yml`, and with `compose.NAME.yml` for each overlay.
        overlays: their names; the one for control groups of version 1 is added where it is needed.
        environment: the file with what the Compose file leaves open.
        progress: is told what goes on.
    """
    old_groups = ["cgroup-v1"] if docker.cgroup_version() == "1" else []
    parts = ["compose", *(f"compose.{overlay}" for overlay in (*old_groups, *overlays))]
    files = [str(folder / f"{part}.yml") for part in parts]
    command = f"{docker.compose_command()} --env-file {environment}"
    down = "down --volumes --remove-orphans --timeout 2"
    progress(f"starting {', '.join(hosts)}")
    try:
        with get_docker_services(
            command, files, name, [down, f"up --detach --no-build {' '.join(hosts)}"], []
        ):
            yield
    finally:
        with get_docker_services(command, files, name, [], [down]):
            progress(f"taking {', '.join(hosts)} down")
