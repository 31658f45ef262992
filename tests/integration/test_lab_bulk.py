"""The lab's bulk load on real nodes: what every test and figure of merging begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.bulk_loaded import FEW_POSTS, assert_whole
from tests.integration.killing import QUICKEST
from tests.lab.bulk import load
from tests.lab.segments import count_segments, told

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.real


@pytest.mark.part(name="nodes")  # the lab alone; tests of merges begin with a look at their segments
def test_a_bulk_load_leaves_many_segments_in_every_copy(
    process_cluster: ProcessCluster,
) -> None:
    """OpenSearch, since it merges in a flush too: it is the one on which this failed."""
    client = process_cluster(QUICKEST).client
    try:
        load(client, FEW_POSTS)
        copies = count_segments(client, "posts-*")
        settings = client.ask("GET", "/posts-*/_settings?flat_settings=true")
    finally:
        client.close()
    assert_whole(copies, FEW_POSTS)
    assert {copy.searched for copy in copies} == {copy.committed for copy in copies} == {12}, told(copies)
    for one in settings.values():
        assert not [name for name in one["settings"] if name.startswith("index.merge")]
        assert one["settings"]["index.refresh_interval"] == "1s"
        assert one["settings"]["index.translog.durability"] == "request"
