"""What a restart of an Elasticsearch node takes where no run has measured it."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.elasticsearch.rules.recovery import usual_restart
from orchestrator.engine.estimate import PUBLISHED, stored_by_node
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Observation
from orchestrator.model.policy import RecoveryLimits
from orchestrator.model.reading import NOT_READ, Unknown
from orchestrator.simulation.glance import glance
from tests.simulation.play import cluster, policy
from tests.simulation.program import Simulation

POLICY = policy()
RATE = 100 << 20
ES1 = NodeName("es1")


def _seen(stored: int | None = None) -> Observation:
    world = cluster(3)
    seen = glance(world, Simulation(world).start_of(POLICY))
    assert not isinstance(seen.disks, Unknown)
    if stored is None:
        return seen
    return replace(seen, disks={n: replace(d, stored_bytes=stored) for n, d in seen.disks.items()})


def test_a_node_takes_longer_the_more_it_holds() -> None:
    few, many = (usual_restart(_seen(size), POLICY).nodes[ES1] for size in (RATE, 1000 * RATE))
    published = PUBLISHED.node
    assert (few.low, few.likely, few.high) == (published.low, published.likely + 0.02, published.high + 1)
    assert (many.low, many.likely, many.high) == (published.low, published.likely + 20, published.high + 1000)


def test_the_data_is_named_where_it_takes_time() -> None:
    none, much = (usual_restart(_seen(size), POLICY).rests_on for size in (1, 1000 * RATE))
    assert none == PUBLISHED.rests_on
    assert much.endswith(
        "; and the time to copy 2 % of a node's data, at worst all of it: nodes have up to "
        "104.9 GB, copied at 104.9 MB a second"
    )


def test_the_rate_is_that_of_the_run_or_a_higher_one_that_stands() -> None:
    slow = policy(recovery_limits=RecoveryLimits(max_bytes_per_sec=None))
    assert usual_restart(_seen(40 << 20), slow).nodes[ES1].high == PUBLISHED.node.high + 1
    fast = policy(recovery_limits=RecoveryLimits(max_bytes_per_sec=10 << 20))
    assert usual_restart(_seen(40 << 20), fast).nodes[ES1].high == PUBLISHED.node.high + 1
    unread = replace(_seen(40 << 20), settings=NOT_READ)
    assert usual_restart(unread, slow).nodes[ES1].high == PUBLISHED.node.high + 1, "the server's default"


def test_what_was_not_read_is_not_guessed() -> None:
    unread = replace(_seen(), disks=NOT_READ)
    assert usual_restart(unread, POLICY) == PUBLISHED
    assert stored_by_node(unread) == {}
