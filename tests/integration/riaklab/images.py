"""Building the image of a Riak host: once for each content of what goes in."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.integration.hostlab import docker
from tests.integration.hostlab.images import BASE, BUILD_SECONDS, NAME, fingerprint
from tests.lab.distributions import Progress, cache_folder

TESTS = Path(__file__).parents[2]
OWN = Path(__file__).parents[1] / "riakhosts"
HOSTS = Path(__file__).parents[1] / "hosts"


def sources() -> dict[str, Path]:
    """What goes into the image, by its name in the build context."""
    doubles = TESTS / "doubles"
    code = [doubles / "riak-double", doubles / "riak-double-node", *(doubles / "riak_double").glob("*.py")]
    own = ("Dockerfile", "sudoers", "riak.service", "riak-at-boot.service", "lab-init")
    return {
        **{name: OWN / name for name in own},
        **{name: HOSTS / name for name in ("sshd.conf", "ssh-host-keys.conf")},
        **{f"doubles/{path.relative_to(doubles)}": path for path in code},
        "stats.json": TESTS / "data" / "riak" / "riak-3.2.1-stats.json",
    }


def build(progress: Progress) -> str:
    """Have the image; the name to run it by.

    Raises:
        LabError: it could not be built.
    """
    content = sources()
    base = docker.run(("docker", "image", "inspect", "--format", "{{.Id}}", BASE), check=False).stdout.strip()
    image = f"{NAME}:riak-{fingerprint(content, base)}"
    if docker.run(("docker", "image", "inspect", image), check=False).returncode == 0:
        return image
    progress(f"building {image}: the first time it takes a minute or two")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as context:
        for name, path in content.items():
            target = Path(context) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        docker.run(("docker", "build", "-t", image, context), seconds=BUILD_SECONDS)
    return image
