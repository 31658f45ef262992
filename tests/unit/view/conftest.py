"""What the tests of the views share: one example of every event, a run in several moments, golden files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.model import action, event, upgrade_event
from orchestrator.model.cluster import Health, Incarnation, NodeName, ShardId, Zone
from orchestrator.model.gate_event import GateClosed, GateOpened, GatesPassed
from orchestrator.model.handoff_event import NotHastened
from orchestrator.model.host_event import AccessGranted, AccessRefused, Answered, FellSilent, StartFailed
from orchestrator.model.merge_event import IndexMerged, MergeBegun, MergeDue, MergeWarned, WritesRead
from orchestrator.model.merging import MergePolicy, MergeTarget, Writes
from orchestrator.model.observation import HealthView, Level, MissingCopy, Recovery
from orchestrator.model.overlap import Overlapping, ShardUnderWay, WaveGaveWay
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.plan import Plan, PlannedWave, Step
from orchestrator.model.policy import Hook, Kind, Policy, Strategy, Wave
from orchestrator.model.prediction import Prediction
from orchestrator.model.reading import Refusal
from orchestrator.model.tuning import OnFailure, ValueChange
from orchestrator.model.tuning_event import TuningApplied, TuningMissed
from orchestrator.model.turn import Work
from orchestrator.model.upgrade import InstallState, InstallStep
from orchestrator.view.progress import Seen
from tests.states import state_with

T0 = 1_800_000_000.0
GOLDEN = Path(__file__).parents[2] / "data" / "view"
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"

ES = tuple(NodeName(f"es{number}") for number in range(1, 4))
POLICY = Policy(kind=Kind.ELASTICSEARCH, cluster="prod", reason="kernel update")
MERGE_POLICY = replace(POLICY, merge=MergePolicy(patterns=("posts-*",)))
POSTS = MergeTarget(index="posts-01", index_uuid="u5", segments=41, bytes=3 * 10**9, due=True)
MERGED_ALREADY = MergeTarget(index="posts-02", index_uuid="u6", segments=4, bytes=10**9, due=False)
ENABLE = "cluster.routing.allocation.enable"
HOOK = action.RunHook(node=ES[0], moment=action.Moment.BEFORE_STOP, number=1, hook=Hook(run="depool {node}"))
TUNE = action.TuneHost(
    node=ES[0],
    tunable="vm.swappiness",
    changes=(ValueChange(path="/proc/sys/vm/swappiness", found="60", wanted="1"),),
    found="60",
    wanted="1",
)
INSTALL = action.RunInstall(
    node=ES[0],
    number=0,
    step=InstallStep(run="dnf install -y -q elasticsearch-{version}"),
    ticket="r/es1/0/1",
    target="9.1.0",
)
HOLD = event.Hold(
    predicate="zero_replica_indices", subject="index logs-x", evidence="5 shards without a second copy"
)
REFUSAL = Refusal(endpoint="https://es1:9200", credentials="user ops", source="env:ES_PASSWORD", fixed=True)
WITHHOLD = action.SettingChange(level=Level.PERSISTENT, key=ENABLE, found="all", wanted="primaries")


def examples() -> list[event.Event]:
    """One of each event, two where it can say two things."""
    missing = MissingCopy(index="logs", index_uuid="u1", number=3, primary=False, reason="NODE_LEFT", count=2)
    return [
        event.RunStarted(
            cluster="prod",
            cluster_uuid="u",
            version="9.1.0",
            policy=POLICY,
            nodes=ES,
            operator="ops",
            host="bastion1",
        ),
        event.RunStarted(
            cluster="prod",
            cluster_uuid="u",
            version="2.19.0",
            distribution="opensearch",
            policy=POLICY,
            nodes=ES[:1],
            operator="ops",
            host="bastion2",
            repairs="20261101-0300-abcd",
        ),
        event.RunStarted(
            cluster="prod",
            cluster_uuid="u",
            version="9.1.0",
            policy=MERGE_POLICY,
            nodes=ES,
            operator="ops",
            host="bastion1",
            indices=(POSTS, MERGED_ALREADY),
        ),
        event.RunStarted(
            cluster="prod",
            cluster_uuid="u",
            version="9.1.0",
            policy=MERGE_POLICY,
            nodes=(),
            operator="ops",
            host="bastion1",
            indices=(POSTS,),
        ),
        event.LeaseTaken(epoch=3, holder="ops@bastion1"),
        event.LeaseTaken(epoch=4, holder="ops@bastion2", takeover=True),
        event.LeaseLost(reason="the lease is lost: held by run run-2 of ops@bastion2 in the cluster"),
        event.LeaseRegained(holder="ops@bastion1"),
        event.BaselineRecorded(missing=(), incarnations={ES[0]: Incarnation()}),
        event.BaselineRecorded(missing=(missing,), incarnations={name: Incarnation() for name in ES}),
        event.SettingChanged(
            level=Level.PERSISTENT,
            key=ENABLE,
            found=None,
            wanted="primaries",
            purpose=action.Purpose.WITHHOLD,
        ),
        event.SettingRestored(level=Level.PERSISTENT, key=ENABLE, value=None),
        event.ReplicasAdded(index="logs-x", index_uuid="u2", found=0, wanted=1),
        event.ReplicasRestored(index_uuid="u2"),
        event.VotingExcluded(node=ES[2]),
        event.VotingRestored(),
        event.WaveStarted(
            wave=Wave(number=1, nodes=ES[:1], zone=Zone("a"), why="no data, so first"), incarnations={}
        ),
        WaveGaveWay(number=1, copies=12),
        Overlapping(
            number=2,
            unassigned=0,
            shards=(ShardUnderWay(index="logs", number=3, nodes=(ES[0], ES[2])),),
        ),
        Overlapping(number=3, unassigned=0, shards=()),
        event.run_phase(Phase.GATED, Phase.WITHHELD),
        event.node_phase(ES[0], NodePhase.STOPPED, NodePhase.STARTING, why="nothing to tune"),
        event.ActionSent(action=action.ProbeSettings()),
        event.ActionSent(
            action=action.WriteSettings(
                changes=(WITHHOLD, WITHHOLD.undone()), purpose=action.Purpose.WITHHOLD
            )
        ),
        event.ActionSent(
            action=action.WriteSettings(
                changes=(action.SettingChange(level=Level.TRANSIENT, key=ENABLE, found="all", wanted=None),),
                purpose=action.Purpose.PUT_BACK,
            )
        ),
        event.ActionSent(action=action.Flush()),
        event.ActionSent(action=action.RetryFailed()),
        event.ActionSent(action=action.ForceHandoff()),
        event.ActionSent(action=action.SetReplicas(index="logs-x", index_uuid="u2", found=0, wanted=1)),
        event.ActionSent(
            action=action.ForceMerge(index="posts-01", index_uuid=POSTS.index_uuid, max_segments=5)
        ),
        event.ActionSent(action=action.RefreshIndex(index="posts-01", index_uuid=POSTS.index_uuid)),
        event.ActionSent(
            action=action.SetIndexSettings(
                index="posts-01",
                index_uuid=POSTS.index_uuid,
                found={"index.number_of_replicas": "0", "index.refresh_interval": "-1"},
                wanted={"index.number_of_replicas": "1", "index.refresh_interval": None},
            )
        ),
        event.ActionSent(action=action.ExcludeFromVoting(node=ES[2])),
        event.ActionSent(action=action.ClearVotingExclusions()),
        event.ActionSent(action=action.StopNode(node=ES[0])),
        event.ActionSent(action=action.StartNode(node=ES[0])),
        event.ActionSent(action=action.RebootHost(node=ES[0])),
        event.ActionSent(action=HOOK),
        event.ActionSent(action=TUNE),
        event.ActionSent(action=INSTALL),
        event.ActionConfirmed(action=action.StopNode(node=ES[0])),
        event.ActionConfirmed(action=HOOK, output="removed es1\nfrom pool\x1b[31m web\n"),
        event.ActionFailed(action=action.StartNode(node=ES[0]), reason="unit not found", in_doubt=False),
        event.ActionFailed(action=action.StopNode(node=ES[0]), reason="connection lost", in_doubt=True),
        HOLD,
        event.HoldsCleared(),
        event.HoldsCleared(but_gates=True),
        GateClosed(gate="rabbitmq_queue ingest", evidence="2,100,000 messages, at most 2,000,000 allowed"),
        GateClosed(gate="prometheus", evidence="no answer within 10 s", readable=False),
        GateOpened(gate="rabbitmq_queue ingest", evidence="12 messages, at most 2,000,000 allowed"),
        GatesPassed(gates={"rabbitmq_queue ingest": "12 messages, at most 2,000,000 allowed"}),
        event.GoodReading(count=2),
        event.GoodReading(count=0, why="es1 left again"),
        event.Rescued(shards=("[new][0]",)),
        event.TakenDown(
            number=1,
            indices=(
                event.IndexTaken(index="logs", index_uuid="u1", replicas=1, filters="", started=((3, 2),)),
            ),
        ),
        event.NotWaitedFor(
            shards=(missing,),
            why="no node can hold these copies now; those that a wave took down are waited for once one can",
        ),
        event.FallbacksHome(number=1, seconds=31.0),
        NotHastened(nodes=ES[:2], why="only Riak 3.2 can be hastened, and this is 3.0.16"),
        event.RedExcused(count=1, subjects=("[new][0]",)),
        event.RedExcused(count=0),
        event.MembersMissed(missing=ES[1:2]),
        event.MembersMissed(back=ES[1:2]),
        event.StoodStill(nodes=ES[:1], seconds=570.0),
        StartFailed(node=ES[0], why="failed (Result: exit-code, status 1)", said=("unknown setting [totl]",)),
        FellSilent(nodes=ES[:1], seconds=12.0),
        FellSilent(nodes=ES, seconds=50.0, why="no answer within 10 s"),
        FellSilent(nodes=(), seconds=11.0),
        AccessRefused(refusal=REFUSAL, reading=True),
        AccessRefused(refusal=replace(REFUSAL, status=403, call="PUT /_cluster/settings"), reading=False),
        AccessGranted(seconds=12.0),
        Answered(nodes=ES[:1], seconds=0.3),
        Answered(nodes=(), seconds=14.0, slowly=True),
        event.WorkDone(node=ES[0], work=Work.REBOOT, why="its host has another boot id"),
        upgrade_event.InstallEnded(node=ES[0], number=0, ticket="r/es1/0/1", state=InstallState.DONE),
        upgrade_event.InstallEnded(
            node=ES[0],
            number=1,
            ticket="r/es1/1/1",
            state=InstallState.FAILED,
            said="E: Unable to locate package\nexit code 100",
        ),
        upgrade_event.Upgraded(node=ES[0], version="9.1.0"),
        upgrade_event.UpgradeMissed(node=ES[0], version="9.1.0", wanted="9.1.0", lacks=("analysis-icu",)),
        event.OwedAgain(node=ES[0], what=("hook while_stopped 0",), why="it came up before this was done"),
        event.Deposed(successor="run-1", owner="ann@bastion2", epoch=7, in_hand=ES[:1]),
        TuningApplied(node=ES[0], tunable=TUNE.tunable, found=TUNE.found, wanted=TUNE.wanted),
        TuningMissed(node=ES[0], tunable="numad", why="sudo refused", on_failure=OnFailure.WARN),
        TuningMissed(node=ES[0], tunable="", why="no answer", on_failure=OnFailure.STOP),
        event.SecondFailure(what="es3 left while es1 was down"),
        WritesRead(counters={POSTS.index_uuid: Writes(operations=7, sequence=7)}),
        MergeDue(index=POSTS.index, index_uuid=POSTS.index_uuid, why="a copy of it came back"),
        MergeWarned(index="posts-01", index_uuid=POSTS.index_uuid, what="it is still written"),
        MergeBegun(index="posts-01", index_uuid=POSTS.index_uuid, segments=41, bytes=3 * 10**9),
        MergeBegun(index="posts-01", index_uuid=POSTS.index_uuid, segments=41, bytes=3 * 10**9, found=True),
        IndexMerged(
            index="posts-01",
            index_uuid=POSTS.index_uuid,
            segments=5,
            bytes=28 * 10**8,
            seconds=372.0,
            incarnations={},
        ),
        IndexMerged(
            index="posts-02",
            index_uuid=MERGED_ALREADY.index_uuid,
            segments=0,
            bytes=0,
            seconds=0.0,
            incarnations={},
            why="it is gone",
        ),
        event.NodeRecovered(
            node=ES[0],
            seconds=72.4,
            bytes_reused=1_234_567_890,
            bytes_copied=4_096,
            operations_replayed=1,
        ),
        event.NodeRecovered(node=ES[1], seconds=3.21),
        event.WaveFinished(number=1, seconds=75.0),
        event.Requested(request=Request.PAUSE, by="ops@bastion1"),
        event.StandingDown(reason="hold ran out after 1h", outcome=Outcome.HELD),
        event.StoodDown(outcome=Outcome.HELD),
        event.StoodDown(outcome=Outcome.NOT_RESTORED, left=("setting a", "node es1: stopped")),
        event.RunResumed(operator="ops", host="bastion2", retry_failed=True, skip=ES[2:]),
        event.RestoreBegun(operator="ops", host="bastion2"),
        event.Deposed(successor="run-2", owner="ops@bastion2", epoch=4, in_hand=ES[:1]),
        event.Deposed(successor="run-1", owner="ben@bastion1", epoch=0),
        event.HookUnproven(node=ES[0], number=0),
        event.RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=3725.0),
    ]


def encode(value: Any) -> Any:
    """As the journal's codec does: plain JSON, a trailing underscore of a name dropped."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name.rstrip("_"): encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.name.lower() if isinstance(value, Request) else value.value
    if isinstance(value, Mapping):
        return {str(key): encode(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [encode(inner) for inner in value]
    return value


def records(events: list[event.Event]) -> list[event.Record]:
    """In the journal, a second apart."""
    return [
        event.Record(run="run-1", sequence=place, at=T0 + place, event=one)
        for place, one in enumerate(events, start=1)
    ]


def run_state(**changes: Any) -> RunState:
    """A run of three nodes: es1 is back, es2 starts, es3 is to come."""
    phases = (NodePhase.RECOVERED, NodePhase.STARTING, NodePhase.PENDING)
    usual: dict[str, Any] = {
        "started": T0,
        "cluster": "prod",
        "version": "9.1.0",
        "policy": POLICY,
        "phase": Phase.DOWN,
        "since": T0 + 90,
        "nodes": {
            name: NodeProgress(name=name, phase=phase, since=T0 + 100)
            for name, phase in zip(ES, phases, strict=True)
        },
        "wave": Wave(number=2, nodes=ES[1:2], zone=Zone("b"), why="fewest shards shared"),
        "wave_since": T0 + 80,
        "waves_finished": 1,
        "settings": {(Level.PERSISTENT, ENABLE): WITHHOLD},
        "withheld_since": T0 + 85,
    }
    return state_with(RunState(run="run-1"), **{**usual, **changes})


def held_state(**changes: Any) -> RunState:
    """The same run before its second wave: nothing is down or changed, and a predicate is not met."""
    phases = (NodePhase.RECOVERED, NodePhase.PENDING, NodePhase.PENDING)
    usual: dict[str, Any] = {
        "phase": Phase.GATED,
        "nodes": {name: NodeProgress(name=name, phase=phase) for name, phase in zip(ES, phases, strict=True)},
        "wave": None,
        "settings": {},
        "withheld_since": None,
        "holds": (HOLD,),
        "holding_since": T0 + 100,
    }
    return run_state(**{**usual, **changes})


def ended_state(**changes: Any) -> RunState:
    """The same run at its good end."""
    usual: dict[str, Any] = {
        "phase": Phase.ENDED,
        "nodes": {name: NodeProgress(name=name, phase=NodePhase.RECOVERED) for name in ES},
        "wave": None,
        "settings": {},
        "withheld_since": None,
        "outcome": Outcome.DONE,
    }
    return run_state(**{**usual, **changes})


def large_run(count: int) -> RunState:
    """A run of many nodes, a third of them done."""
    names = [NodeName(f"es{number:02d}") for number in range(1, count + 1)]
    third = count // 3
    nodes = {
        name: NodeProgress(
            name=name,
            phase=NodePhase.RECOVERED
            if place < third
            else NodePhase.REJOINED
            if place == third
            else NodePhase.PENDING,
            since=T0 + 100,
        )
        for place, name in enumerate(names)
    }
    wave = Wave(number=third + 1, nodes=(names[third],), zone=Zone("b"), why="fewest shards shared")
    return run_state(
        nodes=nodes,
        wave=wave,
        phase=Phase.REASSIGNED,
        settings={},
        withheld_since=None,
    )


def seen_recovering() -> Seen:
    """Three copies on their way, 31 unassigned, as read at T0 + 110."""
    moving = tuple(
        Recovery(
            shard=ShardId(index="logs", index_uuid="u1", number=number),
            target=NodeName("es2"),
            source=NodeName("es1") if number else None,
            stage="INDEX",
            bytes_total=5 * 10**9,
            bytes_reused=10**9,
            bytes_copied=number * 10**9,
            operations_replayed=0,
        )
        for number in range(3)
    )
    health = HealthView(
        status=Health.YELLOW,
        settled=True,
        nodes=3,
        active_shards=60,
        initializing_shards=3,
        relocating_shards=0,
        unassigned_shards=31,
        pending_tasks=0,
        oldest_task=0.0,
    )
    return Seen(recoveries=moving, recoveries_at=T0 + 110, health=health, health_at=T0 + 110)


def a_plan(**changes: Any) -> Plan:
    """A plan of three waves."""
    usual: dict[str, Any] = {
        "cluster": "prod",
        "kind": Kind.ELASTICSEARCH,
        "distribution": "elasticsearch",
        "version": "9.1.0",
        "strategy": Strategy.NODE,
        "fingerprint": "sha256:0123",
        "waves": tuple(
            PlannedWave(
                number=number,
                zone=Zone(zone),
                nodes=(NodeName(f"es{number}"),),
                why=why,
                predicted=Prediction(low=60, likely=75.26, high=140),
            )
            for number, zone, why in (
                (1, "a", "no data, so first"),
                (2, "b", "one node a wave"),
                (3, "c", "elected master, so last"),
            )
        ),
        "predicted": Prediction(low=200, likely=260, high=500),
        "steps": (
            Step(
                wave=0, order=1, target="cluster", action="probe_settings", detail="PUT /_cluster/settings {}"
            ),
            Step(
                wave=1,
                order=2,
                target="cluster",
                action="set_allocation",
                detail=f'PUT /_cluster/settings {{"persistent": {{"{ENABLE}": "primaries"}}}}',
            ),
            Step(wave=1, order=3, target="es1", action="stop", detail="sudo -n systemctl stop elasticsearch"),
        ),
        "settings_changed": {ENABLE: (None, "primaries"), "a.list": (("x", "y"), None)},
    }
    return Plan(**{**usual, **changes})


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a text with its file under tests/data/view; with ORCHESTRATE_REWRITE_GOLDEN=1, write it."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get(REWRITE):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no golden file {name}; write it with {REWRITE}=1 and read it"
        assert text == path.read_text(encoding="utf-8")

    return compare


class Samples:
    """The examples above, for tests: with `--import-mode=importlib` a test cannot import its neighbours."""

    t0 = T0
    hold = HOLD
    policy = POLICY
    hook = HOOK
    examples = staticmethod(examples)
    encode = staticmethod(encode)
    records = staticmethod(records)
    run_state = staticmethod(run_state)
    held_state = staticmethod(held_state)
    ended_state = staticmethod(ended_state)
    large_run = staticmethod(large_run)
    seen_recovering = staticmethod(seen_recovering)
    plan = staticmethod(a_plan)


@pytest.fixture
def samples() -> type[Samples]:
    return Samples
