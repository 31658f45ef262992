"""Every scene of `scenes/` is played, with all that the driver asserts (`scene.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from tests.simulation.scene import Scene

_FILES = sorted(Path(__file__).with_name("scenes").glob("*.py"))


def _scenes() -> Sequence[Scene]:
    return [each for file in _FILES for each in import_module(f"tests.simulation.scenes.{file.stem}").SCENES]


def test_no_two_scenes_have_the_same_name() -> None:
    names = [scene.name for scene in _scenes()]
    assert sorted({*names}) == sorted(names)


@pytest.mark.parametrize(
    "scene", [pytest.param(scene, id=scene.name, marks=tuple(scene.marks)) for scene in _scenes()]
)
def test_scene(scene: Scene) -> None:
    scene.play()
