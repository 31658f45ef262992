"""The templates of a cluster in memory, as its elected master keeps them, and a client of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

from orchestrator.elasticsearch.access import RequestLimits
from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.client import OwnUpdates
from orchestrator.elasticsearch.dialect import Dialect
from orchestrator.elasticsearch.eras import COMPONENT_TEMPLATE, LEGACY_TEMPLATE
from orchestrator.elasticsearch.faults import Answer, Fault

Send = Callable[[HttpRequest], Answer | Fault]


@dataclass
class TemplateCluster:
    """It answers as 7.5 to 9.1 did."""

    # the templates of each form, by name
    kept: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {LEGACY_TEMPLATE: {}, COMPONENT_TEMPLATE: {}}
    )
    # it has no component templates, as before 7.8; `no_handler` is its answer then
    without_components: bool = False
    no_handler: tuple[int, Any] = (405, {"error": "Incorrect HTTP method for uri [/_component_template]"})
    sent: list[HttpRequest] = field(default_factory=list)  # what came in

    def serve(self, request: HttpRequest) -> Answer | Fault:
        """Do what a request asks for."""
        self.sent.append(request)
        if request.path.startswith("/_cluster/state"):
            return Answer(status=200, body=self._state())
        _, form, name = request.path.split("/")
        kept = self.kept[form]
        if form == COMPONENT_TEMPLATE and self.without_components:
            return self._answer(*self.no_handler, request)
        if request.method == "GET":
            return self._listed(
                form, {each: body for each, body in kept.items() if fnmatch(each, name)}, request
            )
        if request.method == "DELETE":
            found = [each for each in kept if fnmatch(each, name)]
            for each in found:
                del kept[each]
            return self._answer(200 if found else 404, {"acknowledged": True}, request)
        if request.params["create"] == "true" and name in kept:
            return self._answer(400, {"error": f"{name} already exists"}, request)
        kept[name] = json.loads(json.dumps(request.body))
        return self._answer(200, {"acknowledged": True}, request)

    def _listed(self, form: str, found: dict[str, Any], request: HttpRequest) -> Answer | Fault:
        status = 200 if found else 404
        if form == LEGACY_TEMPLATE:
            return self._answer(status, found, request)
        listed = [{"name": name, "component_template": body} for name, body in found.items()]
        return self._answer(status, {"component_templates": listed}, request)

    def _answer(self, status: int, body: Any, request: HttpRequest) -> Answer | Fault:
        if status < 300 or status in request.accept:
            return Answer(status=status, body=body)
        return Fault(reason=f"{status} {body}", nothing_done=True, status=status)

    def _state(self) -> dict[str, Any]:
        """Without the aliases of legacy templates, as 6.8 and 7.5 answer. What is empty is filtered out."""
        legacy = {name: {"order": 0} for name in self.kept[LEGACY_TEMPLATE]}
        component = self.kept[COMPONENT_TEMPLATE]
        found = {"templates": legacy} if legacy else {}
        found |= {"component_template": {"component_template": component}} if component else {}
        return {"cluster_name": "lab", **({"metadata": found} if found else {})}


class TemplateClient:
    """What the lease uses of a client."""

    def __init__(self, send: Send, dialect: Dialect) -> None:
        self.read = self.write = lambda request: self._sent(send, request)
        self.dialect = dialect
        self.own_updates = OwnUpdates()
        self.limits = RequestLimits()

    def _sent(self, send: Send, request: HttpRequest) -> Answer | Fault:
        spelled = self.dialect.spelled(request)
        outcome = send(spelled)
        if isinstance(outcome, Fault):
            return outcome
        return replace(outcome, body=spelled.reshape(outcome.body))

    def dialect_to_write(self) -> Dialect:
        return self.dialect
