"""Building the host images: once for each content of what goes in."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.integration.hostlab import docker
from tests.integration.hostlab.flavours import Flavour, find_flavour
from tests.lab.distributions import Progress, cache_folder, fetch
from tests.lab.errors import LabError

REPOSITORY_ROOT = Path(__file__).parents[3]
HOSTS = Path(__file__).parents[1] / "hosts"
REFERENCE = REPOSITORY_ROOT / "docs" / "reference"
BASE = "debian:trixie-slim"
BUILD_SECONDS = 1500.0
"""The first build fetches a Java and an init system from Debian."""
NAME = "orchestrator-lab"


def sources(flavour: Flavour, archive: Path) -> dict[str, Path]:
    """What goes into an image, by its name in the build context: the shipped sudoers and role files too."""
    if flavour.on:
        names = ("lab-init-tuning", "lab-data", *(("lab-data.service",) if flavour.init == "systemd" else ()))
        return {
            "Dockerfile": HOSTS / f"Dockerfile.{flavour.name}",
            **{name: HOSTS / name for name in names},
            "sudoers-tuning": REFERENCE / "sudoers-tuning",
            "sudoers-tuning-root": REFERENCE / "sudoers-tuning-root",
        }
    common = ("nofile.c", "sshd.conf", "install-material", "common.yml", "elasticsearch.yml")
    own = {
        "systemd": ("node.service", "ssh-host-keys.conf", "lab-init", "opensearch.yml"),
        "sysv": ("elasticsearch.init", "lab-init-sysv"),
    }[flavour.init]
    sudoers = "sudoers-elasticsearch" if flavour.init == "systemd" else "sudoers-elasticsearch-sysv"
    return {
        "Dockerfile": HOSTS / f"Dockerfile.{flavour.init}",
        **{name: HOSTS / name for name in (*common, *own)},
        sudoers: REFERENCE / sudoers,
        "elasticsearch-role.yml": REFERENCE / "elasticsearch-role.yml",
        "distribution.zip": archive,
    }


def fingerprint(content: Mapping[str, Path], *also: str) -> str:
    """Names the content. An archive never changes under its name, so its name and size stand for it."""
    digest = hashlib.sha256("\0".join(also).encode())
    for name, path in sorted(content.items()):
        data = f"{path.name} {path.stat().st_size}".encode() if path.suffix == ".zip" else path.read_bytes()
        digest.update(f"\0{name}\0{path.stat().st_mode & 0o111:o}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:12]


def build(flavour: Flavour, *, progress: Progress) -> str:
    """Have the image of a flavour; the name to run it by.

    Raises:
        LabError: it could not be built; the end of what the build said is in the text.
    """
    archive = fetch(flavour.distribution, cache=cache_folder(), progress=progress)
    content = sources(flavour, archive)
    below = build(find_flavour(flavour.on), progress=progress) if flavour.on else BASE
    base = docker.run(
        ("docker", "image", "inspect", "--format", "{{.Id}}", below), check=False
    ).stdout.strip()
    image = f"{NAME}:{flavour.name}-{fingerprint(content, flavour.unit, base)}"
    if docker.run(("docker", "image", "inspect", image), check=False).returncode == 0:
        return image
    progress(f"building {image} (minutes the first time, then kept)")
    log = cache_folder() / f"build-{flavour.name}.log"
    with tempfile.TemporaryDirectory(dir=cache_folder()) as context:
        for name, path in content.items():
            _put(path, Path(context) / name)
        argument = f"BASE={below}" if flavour.on else f"PRODUCT={flavour.unit}"
        command = ("docker", "build", "-t", image, "--build-arg", argument, context)
        with log.open("w", encoding="utf-8") as output:
            try:
                done = subprocess.run(  # noqa: S603  (a fixed command)
                    command, stdout=output, stderr=subprocess.STDOUT, timeout=BUILD_SECONDS, check=False
                )
            except subprocess.TimeoutExpired as error:
                raise LabError(f"building {image} did not end in {BUILD_SECONDS:.0f} s; see {log}") from error
    if done.returncode != 0:
        raise LabError(
            f"building {image} failed; the end of {log}:\n{log.read_text(encoding='utf-8')[-3000:]}"
        )
    return image


def _put(source: Path, target: Path) -> None:
    """Lay a file into the context; a hundred megabytes need not be copied on the same file system."""
    if source.suffix == ".zip":
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copy(source, target)
    else:
        shutil.copy(source, target)
