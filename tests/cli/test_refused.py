"""Command lines that are refused: one message, exit code 2, nothing changed. Rows of `tests/data/cli/`.

A row is a command line, files of the folder, and behind `-> ` the whole message, in which … stands for any
text. `NAME = TEXT` is a file; `NAME + YAML` is a right cluster file with these keys. In the folder there are
lab.yml, of a cluster with indices and zones, and ring.yml, of a Riak cluster that does not answer.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from orchestrator.errors import ExitCode
from tests.cli.console import Console, pattern
from tests.cli.loaded_cluster import LoadedCluster, Posts
from tests.fakes.cases import cases

RING = "kind: riak\nname: ring\nendpoints: ['http://127.0.0.1:1']\n"


@pytest.fixture
def cluster() -> Iterator[LoadedCluster]:
    indices = {"posts_01": Posts(), "closed_01": Posts(open=False), "secret_01": Posts(hidden=True)}
    with LoadedCluster(**indices) as server:
        server.zones = {"es1": "a", "es2": "b", "es3": "c"}
        server.settings["persistent"]["cluster.routing.allocation.awareness.attributes"] = "zone"
        yield server


def make(folder: Path, cluster: LoadedCluster, row: str) -> None:
    """A file of a row."""
    name, sign, text = row.split(" ", 2)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    text = text.removesuffix("\n").replace("FOLDER", str(folder))
    if sign == "+":
        path.write_text(json.dumps(cluster.document(**YAML(typ="safe").load(text))))
    else:
        path.write_bytes(text.encode("latin-1").decode("unicode_escape").encode("latin-1"))


@pytest.mark.parametrize("when", ["refused", "refused_after_reading"])
def test_a_command_line_is_refused_in_one_line(
    console: Console, cluster: LoadedCluster, subtests: pytest.Subtests, when: str
) -> None:
    kept = (cluster.settings, cluster.templates, cluster.legacy)
    before = json.dumps(kept)
    for row, (message,) in cases(f"cli/{when}.txt"):
        line, *files = row.splitlines(keepends=True)
        with subtests.test(line=line, files=files):
            for path in sorted(console.folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (console.folder / "ring.yml").write_text(RING)
            for each in ["lab.yml + {}", *files]:
                make(console.folder, cluster, each)
            there = sorted(console.folder.rglob("*"))
            cluster.asked.clear()
            words = line.encode("latin-1").decode("unicode_escape") if "\\" in line else line
            said = console.run(*shlex.split(words.replace("STATE", str(console.state))))
            assert (said.code, said.out, said.err.count("\n")) == (ExitCode.USAGE, "", 1), said
            assert re.fullmatch(pattern(message, console), said.err), said.err
            assert "hunter" not in said.err
            assert not console.state.exists()
            assert sorted(console.folder.rglob("*")) == there
            asked = [one.method for one in cluster.asked]
            assert set(asked) <= {"GET"} if when != "refused" else asked == []
    assert json.dumps(kept) == before
