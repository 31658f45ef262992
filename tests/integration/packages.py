"""Two versions of a server on each lab node, and a script that installs one: an operator's package.

A version of a node is its configuration and its command line. The script takes some seconds, writes down when
it begins and when it ends, and may be run for a node that is down.
"""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.integration.generations import PLAYBOOK
from tests.lab.nodes import LabCluster

_PARTS: Final = ("config", "launch.json")
_SCRIPT: Final = """\
#!/bin/sh
# install NODE VERSION
set -e
cd {directory}/"$1"
printf 'begun %s %s\\n' "$1" "$2" >> {log}
sleep {seconds}
rm -rf config.new
cp -rp "package-$2/config" config.new
cp -p "package-$2/launch.json" launch.json.new
rm -rf config
mv config.new config
mv launch.json.new launch.json
printf 'ended %s %s\\n' "$1" "$2" >> {log}
"""


@dataclass(frozen=True, slots=True)
class Installs:
    """What the script wrote down: how often it began and ended, by node."""

    begun: Mapping[str, int]
    ended: Mapping[str, int]


class Packages:
    """The packages of a lab's nodes: the version that they run, and another one.

    Args:
        lab: whose nodes they are for.
        settings: of the nodes with the other version, beside those of the lab.
        seconds: how long an installation takes at least.
    """

    def __init__(
        self,
        lab: LabCluster,
        version: str,
        *,
        settings: Mapping[str, str] | None = None,
        seconds: float = 2.0,
    ) -> None:
        self.version = version.rpartition("-")[2]
        self.lab = lab
        self._log = lab.directory / f"installs-{self.version}.log"
        self._script = lab.directory / f"install-{self.version}"
        for node in lab.nodes:
            self._stage(node.name, version, settings or {})
        directory, log = (shlex.quote(str(path)) for path in (lab.directory, self._log))
        text = _SCRIPT.format(directory=directory, log=log, seconds=seconds)
        self._script.write_text(text, encoding="utf-8")
        self._script.chmod(0o755)

    def _stage(self, node: str, version: str, settings: Mapping[str, str]) -> None:
        folder = self.lab.directory / node
        _copy(folder, folder / "package-before")
        self.lab.upgrade(node, version)
        self.lab.configure(node, settings)
        _copy(folder, folder / f"package-{self.version}")
        _copy(folder / "package-before", folder)

    def cluster_document(self) -> dict[str, Any]:
        """The lab's cluster file. Each node has a package of its own, so they need not go together."""
        document: dict[str, Any] = self.lab.cluster_document()
        return {**document, "hosts": {**document["hosts"], "together": "never"}}

    def upgrade(self, **changes: object) -> dict[str, Any]:
        """The playbook's `upgrade`."""
        there = shlex.quote(str(self.lab.directory)) + "/{node}"
        return {
            "install": [{"run": f"{shlex.quote(str(self._script))} {{node}} {{version}}", "as_root": False}],
            "installed": f"cmp -s {there}/package-{{version}}/launch.json {there}/launch.json",
            "verify": [{"run": f"test -d {there}/package-{{version}}"}],
            **changes,
        }

    def playbook(self, **changes: object) -> dict[str, Any]:
        """A playbook that upgrades to the other version."""
        return {**PLAYBOOK, "upgrade": self.upgrade(), **changes}

    def installs(self) -> Installs:
        """The installations so far."""
        text = self._log.read_text(encoding="utf-8") if self._log.exists() else ""
        counts = {word: Counter[str]() for word in ("begun", "ended")}
        for line in text.splitlines():
            word, node, _ = line.split()
            counts[word][node] += 1
        return Installs(begun=counts["begun"], ended=counts["ended"])


def _copy(source: Path, target: Path) -> None:
    """The parts of a version, with their owners."""
    target.mkdir(exist_ok=True)
    for part in _PARTS:
        found, place = source / part, target / part
        if found.is_dir():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(found, place, copy_function=shutil.copy2)
            shutil.copystat(found, place)
        else:
            shutil.copy2(found, place)
    _same_owner(source, target)


def _same_owner(source: Path, target: Path) -> None:
    for part in _PARTS:
        for path in ((source / part), *(source / part).rglob("*")):
            found = path.stat()
            shutil.chown(target / path.relative_to(source), found.st_uid, found.st_gid)
