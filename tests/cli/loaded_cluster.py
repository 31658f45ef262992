"""The small cluster with indices that were just loaded: they have segments, and merge when asked to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import Answerer, Asked, Wire, reply

SEGMENT_BYTES = 1_000_000
_TASK = "0000000000000000000000:7"


@dataclass(slots=True, kw_only=True)
class Posts:
    """An index of one shard, its primary on the first node and a replica on the second."""

    segments: int = 40  # of each copy
    replicas: int = 1
    refresh_interval: str | None = None
    open: bool = True
    hidden: bool = False
    written: int = 0  # documents that come in between two readings
    documents: int = 1000


class _Answers(dict[str, list[Answerer]]):
    """Answers by path, those about indices made as they are asked for."""

    def __init__(self, known: dict[str, list[Answerer]], cluster: LoadedCluster) -> None:
        super().__init__(known)
        self._cluster = cluster

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key) or self._cluster.about_indices(key) or default


class LoadedCluster(SmallCluster):
    """The server.

    Attributes:
        indices: by name.
        merges: names of the indices that a merge was asked for, in order.
    """

    def __init__(self, **indices: Posts) -> None:
        self.indices = {name.replace("_", "-"): index for name, index in indices.items()}
        self.merges: list[str] = []
        super().__init__()
        self.answers = _Answers(self.answers, self)
        for path in [path for path in self.answers if path.startswith("/_cluster/state/")]:
            self.on(path, self._answer_state)
        self.on("/_flush", reply({"_shards": {"total": 2, "successful": 2, "failed": 0}}))

    def about_indices(self, path: str) -> list[Answerer] | None:
        """The answer about some indices; None for a path that is about none."""
        if path.startswith("/_cluster/state/"):
            return [self._answer_state]
        found = re.fullmatch(r"(POST |PUT )?/([^_/][^/]*)/(_\w+)(/.*)?", path)
        if found is None:
            return None
        names = [name for name in found[2].split(",") if name in self.indices]
        match found[3]:
            case "_segments":
                return [reply({"_shards": {"failed": 0}, "indices": {n: self._segments(n) for n in names}})]
            case "_stats":
                return [self._answer_writes(names)]
            case "_forcemerge" if found[1]:
                return [self._merge(names[0])]
            case "_refresh" | "_flush" | "_settings":
                return [reply({"acknowledged": True, "_shards": {"total": 2, "successful": 2, "failed": 0}})]
            case _:
                return None

    def uuid(self, name: str) -> str:
        return f"uuid-of-{name}"

    def _holders(self, name: str) -> list[str]:
        return list(self.nodes)[: self.indices[name].replicas + 1]

    def _answer_state(self, asked: Asked, wire: Wire) -> None:
        state = self._state()
        state["metadata"]["indices"] = {name: self._metadata(name) for name in self.indices}
        state["routing_table"]["indices"] = {
            name: {"shards": {"0": self._copies(name)}} for name, one in self.indices.items() if one.open
        }
        reply(state)(asked, wire)

    def _metadata(self, name: str) -> dict[str, Any]:
        index = self.indices[name]
        settings: dict[str, Any] = {
            "uuid": self.uuid(name),
            "number_of_replicas": str(index.replicas),
            "hidden": str(index.hidden).lower(),
        }
        if index.refresh_interval is not None:
            settings["refresh_interval"] = index.refresh_interval
        return {
            "state": "open" if index.open else "close",
            "aliases": [],
            "settings": {"index": settings},
            "in_sync_allocations": {"0": [f"{name}-{node}" for node in self._holders(name)]},
        }

    def _copies(self, name: str) -> list[dict[str, Any]]:
        return [
            {
                "state": "STARTED",
                "primary": number == 0,
                "node": node,
                "shard": 0,
                "allocation_id": {"id": f"{name}-{node}"},
            }
            for number, node in enumerate(self._holders(name))
        ]

    def _segments(self, name: str) -> dict[str, Any]:
        count = self.indices[name].segments
        listed = {f"_{number}": {"search": True, "size_in_bytes": SEGMENT_BYTES} for number in range(count)}
        copies = [
            {"routing": {"node": node}, "num_search_segments": count, "segments": listed}
            for node in self._holders(name)
        ]
        return {"shards": {"0": copies}}

    def _answer_writes(self, names: list[str]) -> Answerer:
        for name in names:
            self.indices[name].documents += self.indices[name].written
        told = {
            name: {
                "shards": {
                    "0": [
                        {
                            "routing": {"node": node},
                            "indexing": {"index_total": self.indices[name].documents, "delete_total": 0},
                            "merges": {"current": 0},
                            "seq_no": {"max_seq_no": self.indices[name].documents - 1},
                        }
                        for node in self._holders(name)
                    ]
                }
            }
            for name in names
        }
        return reply({"_shards": {"failed": 0}, "indices": told})

    def _merge(self, name: str) -> Answerer:
        def answer(asked: Asked, wire: Wire) -> None:
            self.merges.append(name)
            self.indices[name].segments = int(asked.params["max_num_segments"])
            reply({"task": _TASK})(asked, wire)

        return answer
