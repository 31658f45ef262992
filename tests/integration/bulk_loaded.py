"""A small bulk load for tests, and that all of a load is there."""

from __future__ import annotations

from collections.abc import Sequence

from tests.lab.bulk import BulkLoad, numbered
from tests.lab.segments import CopySegments, told

FEW_POSTS = BulkLoad(indices=numbered("posts", 3), documents=20_000, documents_per_request=600)
"""Twelve copies in twelve segments each."""


def assert_whole(copies: Sequence[CopySegments], wanted: BulkLoad) -> None:
    """Every copy is there and started, none beside another of its shard, and has its documents."""
    assert len(copies) == wanted.copies, told(copies)
    assert len({(copy.index, copy.shard, copy.node) for copy in copies}) == wanted.copies
    assert {copy.state for copy in copies} == {"STARTED"}
    each = wanted.documents // len(wanted.indices)
    assert sum(copy.documents for copy in copies if copy.primary) == each * len(wanted.indices)
    assert sum(copy.documents for copy in copies) == each * len(wanted.indices) * (1 + wanted.replicas)
