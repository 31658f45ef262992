"""What `restore` says of a Riak cluster of which the state knows nothing."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.cli.surroundings import Surroundings
from orchestrator.cli.world import World
from orchestrator.engine.kinds.riak.settings import holder
from orchestrator.errors import ExitCode
from orchestrator.model.observation import Look
from orchestrator.model.reading import Unknown
from orchestrator.view.units import visible


def nothing_known(world: World, where: str, around: Surroundings) -> ExitCode:
    """Say what can be seen. Riak keeps no record of a run, so that none is there proves nothing.

    Args:
        world: the cluster.
        where: the state, in words.
        around: who is told.

    Returns:
        FAILED when members are down, NOT_RESTORED when nobody can tell, else DONE.
    """
    cluster = world.file.spec.name
    message = (
        f"{where} knows of no run that left anything on {cluster}. A Riak cluster keeps no record of "
        "its own: what a run with another state file left is put back with that file (--state)"
    )
    read = world.cluster.observe({Look.CLUSTER, Look.SETTINGS})
    left: list[str] = []
    code = ExitCode.DONE
    if isinstance(read.settings, Unknown):
        message += f". The transfer limits cannot be read: {read.settings.reason}"
        code = ExitCode.NOT_RESTORED
    else:
        message += f". Transfer limits are now: {_limits(read.settings.transient)}"
    if isinstance(read.cluster, Unknown):
        message += f". Who is up cannot be read: {read.cluster.reason}"
        code = ExitCode.NOT_RESTORED
    elif down := sorted(world.members(read.cluster).keys() - read.cluster.members.keys()):
        message += f". Down: {', '.join(down)}; start them on their hosts"
        left, code = [f"node {node} is down" for node in down], ExitCode.FAILED
    around.note(visible(message))
    return around.end(code, cluster=cluster, left=left, message=message)


def _limits(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{node} {value}" for key, value in sorted(settings.items()) if (node := holder(key)))
