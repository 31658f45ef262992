"""`post-bulk-index` on real nodes: a bulk load in many small segments, merged, and every node restarted.

The oracles ask the nodes: `_segments` for every copy of every shard, primary and replica, and each node's own
log for how often it was started.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.bulk_loaded import FEW_POSTS, assert_whole
from tests.integration.killing import QUICKEST, assert_restarted_once, truth
from tests.integration.restarting import orchestrate
from tests.integration.zoning import SIX_IN_THREE
from tests.lab.bulk import POSTS, load
from tests.lab.segments import count_segments, told

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.bulk import BulkLoad
    from tests.lab.nodes import LabCluster

pytestmark = pytest.mark.real

MOST = 5
STEP = ("post-bulk-index", "--index", "posts-*")
RUN_SECONDS = 1200.0


@pytest.mark.part(name="nodes")
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("version", ["9.1.0", "8.19.0", "opensearch-2.19.0"])
def test_300_000_documents_come_to_five_segments_a_copy(
    process_cluster: ProcessCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    lines = _assert_done_once(process_cluster(version, nodes=SIX_IN_THREE), POSTS, tmp_path)
    _print(capsys, version, lines)


@pytest.mark.part(name="nodes")  # test_post_bulk_index merges, restarts and is run again too
def test_a_small_load_comes_to_five_segments_a_copy(
    process_cluster: ProcessCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _print(capsys, QUICKEST, _assert_done_once(process_cluster(QUICKEST), FEW_POSTS, tmp_path))


def _assert_done_once(lab: LabCluster, wanted: BulkLoad, folder: Path) -> list[str]:
    """Load, run the step, look; run it again, and look that nothing was done. What is worth printing."""
    client, story = lab.client, []
    try:
        began = time.monotonic()
        load(client, wanted)
        before, lives = count_segments(client, "posts-*"), truth(lab)
        story.append(f"loaded in {time.monotonic() - began:.0f} s: {told(before)}")
        assert_whole(before, wanted)
        assert min(min(copy.searched, copy.committed) for copy in before) > 2 * MOST, told(before)

        began = time.monotonic()
        code, lines = orchestrate(lab, folder, *STEP, seconds=RUN_SECONDS)
        story.append(f"the step, {time.monotonic() - began:.1f} s, exit {code}: {lines[-1]}")
        assert code == 0, "\n".join(map(str, lines))
        assert_restarted_once(lab, lives, "\n".join(story))
        after = count_segments(client, "posts-*")
        story.append(f"after it: {told(after)}")
        assert_whole(after, wanted)
        assert max(copy.most for copy in after) <= MOST, told(after)

        lives, began = truth(lab), time.monotonic()
        code, lines = orchestrate(lab, folder, *STEP, seconds=RUN_SECONDS)
        story.append(f"again, {time.monotonic() - began:.1f} s, exit {code}: {lines[-1]}")
        assert code == 0, "\n".join(map(str, lines))
        assert truth(lab) == lives, "nothing was due, and something was done"
        assert count_segments(client, "posts-*") == after
    finally:
        client.close()
    return story


def _print(capsys: pytest.CaptureFixture[str], version: str, lines: Sequence[str]) -> None:
    with capsys.disabled():
        sys.stdout.write("\n".join([f"\n{version}", *(f"  {line}" for line in lines), ""]))
