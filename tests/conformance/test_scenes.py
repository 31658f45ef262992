"""The simulation behaves as real clusters do: its readings of each scene are those recorded of real servers.

One scene is also played on real servers, so that a stale record is noticed. `make record` plays all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.elasticsearch.dialect import parse_version
from orchestrator.simulation.ways import Ways
from tests.conformance import record, stages
from tests.conformance.generations import USUAL, VERSIONS, generation
from tests.conformance.record import FOLDER, as_text, changes, differences, load, simulated
from tests.conformance.scenes import SCENES, Scene, played_on
from tests.conformance.stages import Recording
from tests.integration.fixtures_processes import ProcessCluster, Show
from tests.lab.distributions import DISTRIBUTIONS

RECORDED = tuple(version for version in VERSIONS if (FOLDER / f"{version}.json").exists())
LIVE = [
    pytest.param(
        version,
        scene,
        marks=() if version == USUAL and scene.usual else pytest.mark.part(name="generations"),
        id=f"{version}: {scene}",
    )
    for version in VERSIONS
    for scene in played_on(version)
    if version not in RECORDED or (version == USUAL and scene.usual)
]
"""The usual scene, and all those of a version without a record."""


def _apart(version: str, recordings: Mapping[str, Recording]) -> list[str]:
    """Where the simulation and the recordings of a version disagree: scene, shot and part."""
    scenes = {str(scene): scene for scene in played_on(version)}
    return [
        f"{name}: {each}"
        for name, recording in recordings.items()
        for each in differences(recording.shots, simulated(scenes[name], version, recording))
    ]


@pytest.mark.parametrize("version", RECORDED)
def test_simulated_scenes_end_as_recorded(version: str) -> None:
    assert _apart(version, load(version)) == []


@pytest.mark.parametrize("version", RECORDED)
def test_each_scene_that_is_played_is_recorded(version: str) -> None:
    recordings = load(version)
    assert sorted(recordings) == sorted(str(scene) for scene in played_on(version))
    # As `make record` writes it: it then changes only what differs.
    assert (FOLDER / f"{version}.json").read_text() == as_text(recordings)


def test_every_scene_is_played_where_it_applies() -> None:
    """Old versions lack voting exclusions and copies of closed indices; 0.90 also `enable` and a delay."""
    played = {version: len(played_on(version)) for version in VERSIONS}
    fewer = {"0.90.13": 13, **dict.fromkeys(("1.7.6", "2.4.6", "5.6.16", "6.8.23"), 16)}
    assert played == {**dict.fromkeys(VERSIONS, len(SCENES)), **fewer}
    assert len({str(scene) for scene in SCENES}) == len(SCENES) == 19


def test_one_version_of_each_generation_is_played() -> None:
    """Of each major version that is accepted, and that the lab has."""

    def major(product: str, version: str) -> tuple[str, int]:
        return product, parse_version(version.rpartition("-")[2])[0]

    played = {major(generation(version).server.product.value, version) for version in VERSIONS}
    assert len(played) == len(VERSIONS)
    assert played == {major(each.product.value, each.version) for each in DISTRIBUTIONS}


def test_nothing_else_is_recorded() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{version}.json" for version in RECORDED}


def test_any_changed_value_in_a_record_is_found() -> None:
    for name, recording in load(USUAL).items():
        for number, (title, shot) in enumerate(recording.shots):
            planted = [*recording.shots]
            planted[number] = title, dict.fromkeys(shot, "planted")
            found = _apart(USUAL, {name: replace(recording, shots=planted)})
            assert len(found) == len(shot)
            for part, said in zip(shot, found, strict=True):
                assert said.startswith(f"{name}: {title}: {part}: recorded 'planted', simulated ")


def test_a_record_with_other_readings_is_found() -> None:
    recording = load(USUAL)["a master hands over"]
    (*first, (title, shot)) = recording.shots
    for shots in first, [*first, (f"{title}?", shot)], [*first, (title, {**shot, "new": ""})]:
        assert _apart(USUAL, {"a master hands over": replace(recording, shots=shots)})


def test_a_simulation_of_another_generation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "ways_of", lambda *_: Ways(in_sync=False))
    scene = "a copy away misses a write: the copy that missed it is the only one there: "
    assert any(each.startswith(scene) for each in _apart(USUAL, load(USUAL)))


def test_readings_do_not_depend_on_the_nodes_of_copies() -> None:
    """The balancer chooses them. Recordings can be compared because shots call nodes by their copies."""
    other = {"es1": "es3", "es2": "es1", "es3": "es2"}
    moved = {
        name: replace(
            each,
            begin={
                "master": other[each.begin["master"]],
                "copies": {
                    index: [other.get(node) for node in nodes]
                    for index, nodes in each.begin["copies"].items()
                },
            },
        )
        for name, each in load(USUAL).items()
    }
    assert _apart(USUAL, moved) == []


def test_a_new_recording_is_compared_with_the_old_one() -> None:
    old = load(USUAL)["a master hands over"]
    assert changes(old, replace(old, begin={**old.begin, "master": "es2"})) == []
    assert changes(old, replace(old, begin={**old.begin, "copies": {"posts": ["es1"]}}))
    assert changes(old, replace(old, cluster={**old.cluster, "version": "2.19.1"}))
    assert changes(old, replace(old, shots=old.shots[:-1]))


def test_only_what_differs_is_recorded_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = load(USUAL)
    title, shot = real["a master hands over"].shots[0]
    stale = replace(real["a master hands over"], shots=[(title, {**shot, "health": "red"})])
    elected = {name: replace(each, begin={**each.begin, "master": "es3"}) for name, each in real.items()}
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(record, "recorded_at_rest", lambda scene, *_: real[str(scene)])
    path = tmp_path / f"{USUAL}.json"
    path.write_text(as_text({**elected, "a master hands over": stale, "a scene that went": stale}))
    assert record.main([USUAL]) == 1
    said = capsys.readouterr().out
    assert f"{USUAL}: a scene that went: is not played any more" in said
    assert said.count("as recorded, as simulated") == len(real) - 1
    assert path.read_text() == as_text({**elected, "a master hands over": real["a master hands over"]})
    assert record.main([USUAL]) == 0


@pytest.mark.real
@pytest.mark.parametrize(("version", "scene"), LIVE)
def test_a_live_scene_ends_as_simulated_and_recorded(
    process_cluster: ProcessCluster, version: str, scene: Scene, show: Show
) -> None:
    live = record.recorded_at_rest(scene, version, process_cluster)
    show(f"{version}: {scene}: {len(live.shots)} readings")
    assert differences(live.shots, simulated(scene, version, live)) == []
    if version in RECORDED:
        assert changes(load(version)[str(scene)], live) == []
