"""What holds the merges of a bulk load, on real nodes: a writer that goes on, a disk that is too small."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.killing import QUICKEST, truth
from tests.integration.restarting import orchestrate
from tests.lab.bulk import KEEP_SEGMENTS, BulkLoad, load, numbered
from tests.lab.layout import THREE_ZONES
from tests.lab.nodes import LabCluster
from tests.lab.segments import count_segments

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.client import LabClient

pytestmark = [pytest.mark.real, pytest.mark.part(name="nodes")]

MOST = 5
POSTS = BulkLoad(
    indices=numbered("posts", 2), documents=6000, shards=1, documents_per_request=250, settings=KEEP_SEGMENTS
)
LONG_POSTS = BulkLoad(
    indices=("posts-01",),
    documents=6000,
    shards=1,
    replicas=0,
    documents_per_request=250,
    document_words=200,
    settings=KEEP_SEGMENTS,
)
HELD = 3
DISK_BYTES = 192 << 20
HIGH_WATERMARK = 0.9
"""The servers' default: of a path's bytes, at most so many are used."""


@contextmanager
def _writer(client: LabClient, index: str) -> Iterator[None]:
    """A load that is not done: a document every tenth of a second."""
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.wait(0.1):
            number += 1
            client.ask("POST", f"/{index}/_doc/late-{number}", {"number": number})

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _holds(lines: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    held = [line for line in lines if line["event"] == "hold"]
    return {(line["predicate"], line["subject"]): line["evidence"] for line in held}


def test_an_index_that_is_written_holds_the_step(
    process_cluster: ProcessCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = process_cluster(QUICKEST)
    client, of_the_writer = lab.client, lab.client
    step = ("post-bulk-index", "--index", "posts-*", "--no-restart")
    try:
        load(client, POSTS)
        before, segments = truth(lab), count_segments(client, "posts-02")
        with _writer(of_the_writer, "posts-01"):
            code, lines = orchestrate(lab, tmp_path, *step)
            assert (code, lines[-1]["outcome"]) == (HELD, "held"), "\n".join(map(str, lines))
            evidence = _holds(lines)["index_is_not_written", "index posts-01"]
            assert "is still written" in evidence
            assert "--allow-writes" in evidence
            assert count_segments(client, "posts-02") == segments, "another index was merged all the same"
            assert truth(lab) == before

            code, allowed = orchestrate(lab, tmp_path, *step, "--allow-writes")
            assert code == 0, allowed
            warned = {line["index"]: line["what"] for line in allowed if line["event"] == "merge_warned"}
            assert set(warned) == {"posts-01"}
            assert "new writes make new segments" in warned["posts-01"]
        assert max(copy.most for copy in count_segments(client, "posts-02")) <= MOST
    finally:
        client.close()
        of_the_writer.close()
    with capsys.disabled():
        sys.stdout.write(f"\n  held, exit {HELD}: {evidence}\n  allowed: {warned['posts-01']}\n")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, in a file: this needs root, as the rest of the lab's hosts do."""
    image, mounted = tmp_path / "disk.img", tmp_path / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    _run("mkfs.ext4", "-q", "-m", "0", str(image))
    _run("mount", "-o", "loop", str(image), str(mounted))
    try:
        for folder in (tmp_path, *tmp_path.parents[:3], mounted):
            folder.chmod(folder.stat().st_mode | 0o055)  # the nodes run as an account of their own
        yield mounted
    finally:
        _run("umount", "--lazy", str(mounted))


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603  (constants and own paths)


def test_a_disk_without_room_for_the_merge_is_refused(
    small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = {"cluster.routing.allocation.disk.threshold_enabled": "true"}  # the lab's own nodes do not
    alone = THREE_ZONES[:1]
    with LabCluster.start(
        version=QUICKEST, nodes=alone, directory=small_disk / "lab", settings=measured
    ) as lab:
        client = lab.client
        try:
            load(client, LONG_POSTS)
            segments = count_segments(client, "posts-01")
            _fill(client, small_disk / "ballast", of_the_copy=0.5)
            code, lines = orchestrate(lab, tmp_path, "force-merge", "--index", "posts-*")
            assert (code, lines[-1]["outcome"]) == (HELD, "held"), "\n".join(map(str, lines))
            evidence = _holds(lines)["disk_has_room", "index posts-01"]
            assert "too little" in evidence
            assert count_segments(client, "posts-01") == segments

            (small_disk / "ballast").unlink()
            code, lines = orchestrate(lab, tmp_path, "force-merge", "--index", "posts-*")
            assert code == 0, lines
            assert max(copy.most for copy in count_segments(client, "posts-01")) <= MOST
        finally:
            client.close()
    with capsys.disabled():
        sys.stdout.write(f"\n  {evidence}\n")


def _fill(client: LabClient, ballast: Path, *, of_the_copy: float) -> None:
    """Leave so much of the copy's bytes as room below the high watermark."""
    node = next(iter(client.ask("GET", "/_nodes/stats/fs")["nodes"].values()))
    path = node["fs"]["data"][0]
    used = path["total_in_bytes"] - path["available_in_bytes"]
    stats = client.ask("GET", "/posts-01/_stats/store")
    room = int(stats["_all"]["total"]["store"]["size_in_bytes"] * of_the_copy)
    with ballast.open("wb") as file:
        file.write(b"\0" * (int(path["total_in_bytes"] * HIGH_WATERMARK) - used - room))
