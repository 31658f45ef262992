"""What one reading of a Riak cluster costs its nodes: `python -m tests.benchmarks.riak_readings`.

Three nodes of the test double, of which one is being restarted. By phase: commands that start an Erlang VM,
in all and on the node with the most, other commands, requests over HTTP, and seconds. A VM takes 0.45 s of a
processor (measured on 3.2.1, near-quiet machine), and a node has two of them; here time goes ten times as
fast. Figures, no assertions. The script needs nothing that older commits lack, so it shows the worth of a
change.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Final

from orchestrator.engine.phases import READS
from orchestrator.model.cluster import NodeName
from orchestrator.model.phase import Phase
from orchestrator.stores.riak.output import CommandOutput
from orchestrator.view.text import table
from tests.unit.stores.riak_cluster import DEV3, NAMES, Staged, staged

_VM_SECONDS: Final = 0.45
_FASTER: Final = 10.0
_PROCESSORS: Final = 2


class _Slowed:
    """Takes as long for a command as an Erlang VM does, and no more of them at once than processors."""

    def __init__(self) -> None:
        self._processors = {node: threading.Semaphore(_PROCESSORS) for node in NAMES}
        self.vms: Counter[NodeName] = Counter()
        self.others = 0

    def ran(self, node: NodeName, line: str, output: CommandOutput) -> CommandOutput:
        """For `Scripted.spoil`: the output as it is, later."""
        if line.startswith("/proc/"):
            self.others += 1
            return output
        self.vms[node] += 1
        with self._processors[node]:
            time.sleep(_VM_SECONDS / _FASTER)
        return output


def _measured(stage: Staged, phase: Phase, slowed: _Slowed) -> tuple[str, ...]:
    for _ in range(2):  # the second one, as nearly all of a wait are
        slowed.vms.clear()
        slowed.others = 0
        requests = sum(len(port.asked) for port in stage.ports.values())
        began = time.monotonic()
        stage.cluster.observe(READS[phase].look)
        seconds = (time.monotonic() - began) * _FASTER
    requests = sum(len(port.asked) for port in stage.ports.values()) - requests
    most = max(slowed.vms.values(), default=0)
    return (
        phase.value,
        str(slowed.vms.total()),
        str(most),
        str(slowed.others),
        str(requests),
        f"{seconds:.1f}",
    )


def main() -> None:
    """Print the table."""
    rows = []
    with ExitStack() as stack:
        stage = stack.enter_context(staged())
        slowed = _Slowed()
        stage.runner.spoil = slowed.ran
        stage.world.run(300)
        rows += [_measured(stage, phase, slowed) for phase in (Phase.GATED, Phase.WITHHELD)]
        stage.cluster.avoid({DEV3})
        stage.world.stop(DEV3)
        stage.world.run(30)
        rows.append(_measured(stage, Phase.DOWN, slowed))
        stage.world.start(DEV3)
        stage.runner.starts[DEV3] += 1
        stage.world.run(4)
        rows.append(_measured(stage, Phase.REJOINED, slowed))
        stage.world.run(16)
        rows.append(("  ready", *_measured(stage, Phase.REJOINED, slowed)[1:]))
        rows.append(("handoff", *_measured(stage, Phase.REASSIGNED, slowed)[1:]))
        stage.world.clean(within=600)
        rows.append(("  its end", *_measured(stage, Phase.REASSIGNED, slowed)[1:]))
    head = ("PHASE", "VMS", "MOST ON A NODE", "OTHER COMMANDS", "HTTP", "SECONDS")
    sys.stdout.write("\n".join(table(head, rows, numbers=(1, 2, 3, 4, 5))) + "\n")


if __name__ == "__main__":
    main()
