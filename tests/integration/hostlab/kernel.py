"""The kernel that all containers share with the machine: what was found there is put back, however it ends.

Values are read and written in a container of the host image, so that neither needs root here, and so that it
is the engine's kernel where that is another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import wait_until
from tests.lab.distributions import Progress, cache_folder
from tests.lab.errors import LabError

DATA_IMAGE = "orchestrator-lab-node.img"
"""The name of the file behind each node's disk; no other loop device is ours."""
READ = r"""
cd /
for file in $(find proc/sys/vm proc/sys/fs/file-max proc/sys/fs/nr_open -type f -perm -200 | sort) \
    $(find sys/kernel/mm/*transparent_hugepage -type f -perm -200 | sort) \
    sys/block/*/queue/scheduler sys/block/*/queue/read_ahead_kb sys/block/*/queue/nr_requests; do
    value=$(cat "$file" 2> /dev/null) && printf '/%s\t%s\n' "$file" "$(echo $value)"
done
cat sys/block/loop*/loop/backing_file 2> /dev/null | sed 's/^/loop\t/'
"""
WRITE = r"""
mount -o remount,rw /sys && mount -o remount,bind,rw /proc/sys || exit 1
while IFS="$(printf '\t')" read -r file value; do echo "$value" > "$file"; done
exit 0
"""
ACTIONS = ("/proc/sys/vm/compact_memory", "/proc/sys/vm/drop_caches", "/proc/sys/vm/stat_refresh")
"""Files that do something when they are written to, and hold no setting."""
GONE_SECONDS = 30.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_kernel(image: str) -> dict[str, str]:
    """Every value that a test on hosts may change, by path; of a list of choices, the chosen one.

    Raises:
        LabError: no container could be run.
    """
    return {path: value for path, value in _read(image) if path != "loop" and path not in ACTIONS}


def own_devices(image: str) -> list[str]:
    """Files behind loop devices that hosts of ours have attached."""
    return [value for path, value in _read(image) if path == "loop" and value.endswith(f"/{DATA_IMAGE}")]


def _read(image: str) -> list[tuple[str, str]]:
    said = _run(image, READ).splitlines()
    pairs = (line.partition("\t") for line in said)
    return [(path, chosen(value)) for path, _, value in pairs]


def chosen(text: str) -> str:
    """The word in brackets, or the text where there is none."""
    found = re.search(r"\[(.+?)\]", text)
    return found.group(1) if found else text


def write_kernel(image: str, values: Mapping[str, str]) -> None:
    """Write values, those of huge pages first: `min_free_kbytes` follows them, `nr_requests` the scheduler.

    Raises:
        LabError: no container could be run.
    """
    ordered = sorted(values, key=lambda path: ("transparent_hugepage" not in path, "scheduler" not in path))
    _run(image, WRITE, stdin="".join(f"{path}\t{values[path]}\n" for path in ordered))


def _run(image: str, script: str, *, stdin: str | None = None) -> str:
    container = ("docker", "run", "--rm", "--interactive", "--network", "none", "--cap-add", "SYS_ADMIN")
    rights = ("--security-opt", "apparmor=unconfined", "--entrypoint", "/bin/sh")
    return docker.run((*container, *rights, image, "-c", script), stdin=stdin).stdout


@contextmanager
def kept(image: str, progress: Progress) -> Iterator[None]:
    """Put back at the end what the kernel has now; what a killed run left is put back first.

    Raises:
        LabError: a value could not be put back, or a loop device is left; they are named.
    """
    record = cache_folder() / "kernel-found.json"
    boot = BOOT_ID.read_text(encoding="ascii").strip()
    _repair(image, record, boot, progress)
    found = read_kernel(image)
    record.write_text(json.dumps({"boot": boot, "values": found}), encoding="utf-8")
    try:
        yield
    finally:
        _put_back(image, found, progress)
        record.unlink()
        if not wait_until(lambda: not own_devices(image), seconds=GONE_SECONDS):
            raise LabError(f"left on this machine: loop devices of {', '.join(own_devices(image))}")


def _repair(image: str, record: Path, boot: str, progress: Progress) -> None:
    """Values found before a run that could not put them back; after a boot they are nobody's business."""
    if not record.exists():
        return
    left = json.loads(record.read_text(encoding="utf-8"))
    if left["boot"] == boot:
        progress("an earlier lab was killed: putting back what it had found in the kernel")
        _put_back(image, left["values"], progress)
    record.unlink()


def _put_back(image: str, found: Mapping[str, str], progress: Progress) -> None:
    for _ in range(2):  # what one value pulls along is right in the second round
        now = read_kernel(image)
        changed = {path: value for path, value in found.items() if now.get(path) != value}
        if not changed:
            break
        progress(f"putting {len(changed)} values of the kernel back")
        write_kernel(image, changed)
    now = read_kernel(image)
    left = [
        f"{path} is {now.get(path)}, was {value}" for path, value in found.items() if now.get(path) != value
    ]
    if left:
        raise LabError(f"not put back on this machine: {'; '.join(left)}")
