"""The lab's own HTTP client: small, without retries, and independent of the tested program's client."""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import urllib3

from tests.lab.errors import LabError

REQUEST_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to connect to a lab cluster: URLs of its nodes, a user (None without security), an authority."""

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str | None = None
    ca: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer: the status and the body, parsed if it is JSON."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the status is a success."""
        return 200 <= self.status < 300


class LabClient:
    """Requests to one lab cluster; each goes to one endpoint, once. Safe to share between threads."""

    def __init__(self, access: Access) -> None:
        self.access = access
        context = ssl.create_default_context(cafile=access.ca) if access.ca else None
        self._pool = urllib3.PoolManager(maxsize=8, retries=False, ssl_context=context)
        self._headers = {"content-type": "application/json"}
        if access.user is not None:
            self._headers |= urllib3.make_headers(basic_auth=f"{access.user}:{access.password}")

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def send(
        self, endpoint: str, method: str, path: str, body: Any = None, *, seconds: float = REQUEST_SECONDS
    ) -> Answer:
        """Send one request to one endpoint. A body of text is sent unchanged (bulk bodies)."""
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        response = self._pool.request(
            method, endpoint + path, body=data, headers=self._headers, timeout=urllib3.Timeout(seconds)
        )
        try:
            return Answer(status=response.status, body=json.loads(response.data or b"null"))
        except ValueError:
            return Answer(status=response.status, body=response.data.decode(errors="replace"))

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        accept: Sequence[int] = (),
        seconds: float = REQUEST_SECONDS,
    ) -> Any:
        """Send a request to the first endpoint that answers; returns the body of a success.

        The status codes in `accept` count as success too.
        """
        reasons = []
        for endpoint in self.access.endpoints:
            try:
                answer = self.send(endpoint, method, path, body, seconds=seconds)
            except urllib3.exceptions.HTTPError as error:
                reasons.append(f"{endpoint}: {error}")
                continue
            if answer.ok or answer.status in accept:
                return answer.body
            raise LabError(f"{method} {endpoint}{path} was answered with {answer.status}: {answer.body}")
        raise LabError(f"{method} {path}: no endpoint answered ({'; '.join(reasons)})")

    def wait_green(self, indices: Sequence[str], seconds: int) -> None:
        """Wait until every copy of the indices is started."""
        path = (
            f"/_cluster/health/{','.join(indices)}?wait_for_status=green&wait_for_events=languid"
            f"&timeout={seconds}s"
        )
        health = self.ask("GET", path, accept=(408,), seconds=seconds + 10)
        if health["timed_out"]:
            raise LabError(f"not green after {seconds} s: {json.dumps(health)}")

    def fill(self, path: str, body: str, *, seconds: float = REQUEST_SECONDS) -> None:
        """Send a bulk request, every document of which must be taken."""
        answer = self.ask("POST", path, body, seconds=seconds)
        if answer.get("errors") or any("error" in item["index"] for item in answer.get("items", ())):
            raise LabError(f"{path}: the cluster refused documents: {str(answer)[:500]}")
