"""Public values in words, for every view and the report: how runs end, and the servers of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OUTCOMES: Final[Mapping[str, str]] = {
    "done": "done",
    "held": "held",
    "failed": "failed",
    "interrupted": "interrupted",
    "paused": "paused",
    "not_restored": "NOT RESTORED",
    "restored": "restored",
    "deposed": "taken over by another process",
}
"""Public name of an outcome to its words."""

PRODUCTS: Final[Mapping[str, str]] = {
    "elasticsearch": "Elasticsearch",
    "opensearch": "OpenSearch",
    "riak": "Riak",
}
"""Public name of a server, or of a kind of cluster, to the name of the product."""
