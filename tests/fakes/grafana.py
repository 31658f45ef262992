"""A double of Grafana: it answers requests for annotations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.scripted_http import Asked, ScriptedServer, Wire, reply


@dataclass
class FakeGrafana:
    """Keeps organization annotations, as the documentation of its API has them."""

    token: str  # what a request has to carry
    kept: dict[int, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    loses: int = 0  # so many answers are lost, once the work is done

    def at(self, server: ScriptedServer) -> None:
        """Let a server answer so."""
        server.on("/api/annotations", self)
        for number in range(1, 20):
            server.on(f"/api/annotations/{number}", self)

    def __call__(self, asked: Asked, wire: Wire) -> None:
        assert asked.headers["authorization"] == f"Bearer {self.token}"
        self.asked.append(asked.method)
        answer = getattr(self, f"_{asked.method.lower()}")(asked)
        if self.loses:
            self.loses -= 1
            raise OSError("cut as scripted")
        reply(answer)(asked, wire)

    def _get(self, asked: Asked) -> object:
        query = parse_qs(urlsplit(asked.target).query)
        tags = set(query.get("tags", ()))
        return [{"id": number, **one} for number, one in self.kept.items() if tags <= set(one["tags"])]

    def _post(self, asked: Asked) -> object:
        assert asked.json["text"]
        number = len(self.kept) + 1
        self.kept[number] = {"timeEnd": asked.json["time"], **asked.json}
        return {"message": "Annotation added", "id": number}

    def _patch(self, asked: Asked) -> object:
        self.kept[int(asked.path.rpartition("/")[2])] |= asked.json
        return {"message": "Annotation patched"}

    @property
    def regions(self) -> list[tuple[list[str], int, int]]:
        return [(one["tags"], one["time"], one["timeEnd"]) for one in self.kept.values()]
