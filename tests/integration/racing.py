"""The program, as a process beside which a new index appears at the worst moment; run by tests.

It is the program's own composition with an executor that makes an index whose only primary is on the node to
be stopped: `flush` makes it after allocation is withheld and before the last reading, `stop` between that
reading and the stop itself, where no reading can see it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any
from urllib.request import Request, urlopen

from orchestrator.cli.program import run
from orchestrator.model.action import Action, Flush, StopNode
from orchestrator.model.event import ActionConfirmed, ActionFailed
from orchestrator.runtime import loop
from orchestrator.runtime.executor import Executor

VARIABLE = "ORCHESTRATE_TEST_RACE"
TOLD: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
INDEX = "just-made"
_MOMENTS = {"flush": Flush, "stop": StopNode}


class RacedExecutor(Executor):
    """Makes the index once, just before the chosen verb is performed."""

    done = False

    def perform(self, actions: Sequence[Action]) -> tuple[ActionConfirmed | ActionFailed, ...]:
        if not self.done and any(isinstance(action, _MOMENTS[TOLD["moment"]]) for action in actions):
            type(self).done = True
            _make_index(TOLD["node"])
        return super().perform(actions)


def _make_index(node: str) -> None:
    settings = {
        "number_of_shards": 1,
        "number_of_replicas": 0,
        "routing.allocation.require._name": node,
    }
    request = Request(  # noqa: S310  (an address of the test's own cluster)
        f"{TOLD['endpoint']}/{INDEX}?wait_for_active_shards=1",
        data=json.dumps({"settings": {"index": settings}}).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    with urlopen(request, timeout=30) as answer:  # noqa: S310  (as above)
        answer.read()


if __name__ == "__main__":
    vars(loop)["Executor"] = RacedExecutor
    sys.exit(run(sys.argv[1:]))
