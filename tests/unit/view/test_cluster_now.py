"""Each kind of change that a journal lists, compared with a reading of the cluster."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.state import RunState, Unrestored
from orchestrator.model.action import SettingChange
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ReplicasAdded
from orchestrator.model.observation import Level, SettingsView
from orchestrator.model.reading import Unknown
from orchestrator.ports import ClusterReadings
from orchestrator.simulation import views
from orchestrator.view.cluster_now import ChangeNow, ChangeState, compare, restoring_lines
from tests.simulation.play import cluster

SPEED = "indices.recovery.max_bytes_per_sec"
VIEW = views.cluster(cluster(3))
UUID = next(index.uuid for index in VIEW.indices if index.name == "logs")
NO_READING = Unknown(reason="no master")


def compared(unrestored: Unrestored, **read: object) -> ChangeNow:
    """The only change of such a run, compared with a reading."""
    readings = ClusterReadings(**read)
    found = compare(RunState(run="r", unrestored=unrestored), readings, at=2.0, ended=1.0, unwritten=False)
    assert found.at == 2.0
    return found.changes[0]


def speed(found: str | None = None) -> Unrestored:
    change = SettingChange(level=Level.PERSISTENT, key=SPEED, found=found, wanted="100mb")
    return Unrestored(settings={(Level.PERSISTENT, SPEED): change})


def test_compare_of_a_setting_and_of_added_replicas() -> None:
    by_file = SettingsView(persistent={SPEED: "20mb"}, files={SPEED: "20mb"}, resets=False)
    for before, settings, found in [
        (None, SettingsView(), ChangeState.RESTORED),
        ("40mb", SettingsView(persistent={SPEED: "40mb"}), ChangeState.RESTORED),
        ("40mb", SettingsView(transient={SPEED: "40mb"}), ChangeState.CHANGED),
        (None, SettingsView(persistent={SPEED: "100mb"}), ChangeState.NOT_RESTORED),
        (None, SettingsView(persistent={SPEED: "1mb"}), ChangeState.CHANGED),
        (None, by_file, ChangeState.RESTORED),
        (None, NO_READING, ChangeState.UNKNOWN),
    ]:
        assert compared(speed(before), cluster=VIEW, settings=settings).found is found
    # The index has one replica now, or does not exist any more.
    for uuid, replicas, found in (
        (UUID, 1, ChangeState.RESTORED),
        (UUID, 0, ChangeState.NOT_RESTORED),
        ("gone", 0, ChangeState.CHANGED),
    ):
        added = ReplicasAdded(index="logs", index_uuid=uuid, found=replicas, wanted=replicas + 1)
        unrestored = Unrestored(replicas={uuid: added})
        assert compared(unrestored, cluster=VIEW).found is found
        assert compared(unrestored, cluster=NO_READING).found is ChangeState.UNKNOWN


def test_nodes_excluded_from_voting() -> None:
    unrestored = Unrestored(excluded=frozenset({NodeName("es1")}))
    assert compared(unrestored, cluster=VIEW).found is ChangeState.RESTORED
    still = compared(unrestored, cluster=replace(VIEW, voting_exclusions=("es1", "es9")))
    assert (still.found, still.now) == (ChangeState.NOT_RESTORED, "es1 excluded")
    unread = compared(unrestored, cluster=NO_READING).sentence
    assert unread == "voting of es1: none excluded → unknown: no master"


def test_a_change_that_cannot_be_read_is_not_counted_as_restored() -> None:
    state = RunState(run="r", unrestored=speed())
    read = ClusterReadings(cluster=VIEW, settings=NO_READING)
    found = compare(state, read, at=2.0, ended=1.0, unwritten=False)
    assert not found.all_restored
    assert restoring_lines(state, found)[0].startswith("NOT RESTORED: 1 setting; read from")
