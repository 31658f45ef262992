"""Bastions for tests: `bastion_of(lab)`, and what forks their processes; none outlives its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.killing import Bastion, Described
from tests.integration.nursery import Nursery

BastionOf = Callable[..., Bastion]


@pytest.fixture
def bastion_of(tmp_path: Path) -> Iterator[BastionOf]:
    """Makes a bastion: `bastion_of(lab, "name", expiry=…, foreign=…)`; its processes end with the test."""
    made: list[Bastion] = []

    def make(lab: Described, name: str = "bastion", **fields: Any) -> Bastion:
        made.append(Bastion(folder=tmp_path / name, lab=lab, **fields))
        return made[-1]

    yield make
    for bastion in made:
        bastion.close()


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    """For `bastion_of(lab, nursery=nursery)`, where a test runs the program hundreds of times."""
    made = Nursery(tmp_path)
    yield made
    made.close()
