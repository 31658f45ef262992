"""The server archives of the lab: their versions, the Java that they need, and their download.

The archives come from Maven Central, where every machine that builds Java software can fetch them. They are
the real servers with few modules. One archive is fetched once into a cache outside the repository
(`~/.cache/orchestrator-lab`, or `ORCHESTRATE_LAB_CACHE`) and unpacked once. A lock keeps two processes that
install the same version from writing over each other. An unpacked folder gets its final name only when it is
complete.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.lab.errors import LabError

CACHE_VARIABLE = "ORCHESTRATE_LAB_CACHE"
DOWNLOAD_LIMIT_SECONDS = 900.0
"""A hundred megabytes over a slow line, and Maven's own plugins the first time."""

Progress = Callable[[str], None]
"""Takes one line about the lab's progress."""


class Product(Enum):
    """The server's product: it decides the archive, the main class and the configuration file."""

    ELASTICSEARCH = "elasticsearch"
    OPENSEARCH = "opensearch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One server archive, and the oldest and newest Java (None: any) that it starts on.

    Servers that install a security manager end at Java 23: 24 removed it (JEP 486).
    """

    product: Product
    version: str
    java_minimum: int
    java_maximum: int | None = None

    @property
    def name(self) -> str:
        """The archive's name without its suffix, and the name of its unpacked folder."""
        return f"{self.product.value}-{self.version}"

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.split(".", 1)[0])

    @property
    def numbers(self) -> tuple[int, int]:
        """The first two numbers of the version."""
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)

    def before(self, major: int, minor: int = 0) -> bool:
        """Whether this is Elasticsearch before that version; OpenSearch never is."""
        return self.product is Product.ELASTICSEARCH and self.numbers < (major, minor)

    @property
    def bulk(self) -> str:
        """The path of a bulk request below its index: documents have a type before 7."""
        return "doc/_bulk" if self.before(7) else "_bulk"

    @property
    def coordinate(self) -> str:
        """The Maven coordinate, as `dependency:copy` takes it. Before 6 there is only the whole archive."""
        if self.product is Product.OPENSEARCH:
            group = "org.opensearch.distribution.integ-test-zip"
        elif self.before(2):
            group = "org.elasticsearch"
        elif self.before(6):
            group = "org.elasticsearch.distribution.zip"
        else:
            group = "org.elasticsearch.distribution.integ-test-zip"
        return f"{group}:{self.product.value}:{self.version}:zip"


_ELASTICSEARCH = (
    ("9.1.0", 21, None),
    ("8.19.0", 17, None),
    ("7.17.28", 17, 23),
    ("7.5.2", 17, 17),
    ("6.8.23", 17, 17),
    ("5.6.16", 17, 17),
    ("2.4.6", 17, 17),
    ("1.7.6", 8, 8),
    ("1.4.5", 8, 8),
    ("1.1.2", 8, 8),
    ("0.90.13", 8, 8),
)
_OPENSEARCH = (
    ("3.3.0", 21, None),
    ("3.1.0", 21, None),
    ("2.19.0", 17, 23),
    ("1.3.20", 17, 23),
)
DISTRIBUTIONS: tuple[Distribution, ...] = tuple(
    Distribution(product=product, version=version, java_minimum=oldest, java_maximum=newest)
    for product, servers in ((Product.ELASTICSEARCH, _ELASTICSEARCH), (Product.OPENSEARCH, _OPENSEARCH))
    for version, oldest, newest in servers
)
"""All servers of the lab, the newest first; the first is the demo's."""

DEMONSTRATED: tuple[Distribution, ...] = tuple(each for each in DISTRIBUTIONS if not each.before(5))
"""Servers of the demo. On older ones an absent setting cannot become absent again: its check would fail."""


def find_distribution(version: str, *, among: Sequence[Distribution] = DISTRIBUTIONS) -> Distribution:
    """The distribution of a version (`9.1.0`) or of a full name (`opensearch-2.19.0`)."""
    for distribution in among:
        if version in (distribution.version, distribution.name):
            return distribution
    known = ", ".join(distribution.name for distribution in among)
    raise LabError(f"the lab has no server of version {version}; it has {known}")


def cache_folder() -> Path:
    """The folder of the archives: `ORCHESTRATE_LAB_CACHE`, else `~/.cache/orchestrator-lab` (XDG)."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "orchestrator-lab"


def install(distribution: Distribution, *, cache: Path, progress: Progress) -> Path:
    """Unpack the distribution into the cache, fetching it if needed."""
    home = cache / "unpacked" / distribution.name
    if home.is_dir():
        return home
    archive = fetch(distribution, cache=cache, progress=progress)
    with _exclusive(cache / f"{distribution.name}.lock"):
        if not home.is_dir():  # else another process was first
            progress(f"unpacking {archive.name}")
            _unpack(archive, home)
    return home


def fetch(distribution: Distribution, *, cache: Path, progress: Progress) -> Path:
    """Download the distribution's archive into the cache if it is missing."""
    archive = cache / "archives" / f"{distribution.name}.zip"
    cache.mkdir(parents=True, exist_ok=True)
    with _exclusive(cache / f"{distribution.name}.lock"):
        if not archive.is_file():
            _download(distribution, archive, progress)
    return archive


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold an advisory lock; the kernel releases it with the process, so a crash leaves none behind."""
    with path.open("w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def download_command(distribution: Distribution, folder: Path) -> tuple[str, ...]:
    """The command that puts the archive into a folder, under Maven's own name for it."""
    where = (f"-Dartifact={distribution.coordinate}", f"-DoutputDirectory={folder}")
    return ("mvn", "-q", "-B", "dependency:copy", *where)


def _download(distribution: Distribution, archive: Path, progress: Progress) -> None:
    if shutil.which("mvn") is None:
        raise LabError(
            f"the lab fetches {distribution.name} with Maven, and there is no mvn on the PATH: install it "
            f"(Debian: apt-get install maven; macOS: brew install maven), or put the archive at {archive}"
        )
    progress(f"downloading {distribution.name} (once; kept in {archive.parent})")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        command = download_command(distribution, Path(scratch))
        outcome = subprocess.run(  # noqa: S603  (a fixed command; the coordinate is from the table above)
            command, capture_output=True, text=True, timeout=DOWNLOAD_LIMIT_SECONDS, check=False
        )
        fetched = Path(scratch) / archive.name
        if outcome.returncode != 0 or not fetched.is_file():
            said = (outcome.stdout + outcome.stderr).strip()[-1500:]
            raise LabError(f"{' '.join(command)} failed with status {outcome.returncode}: {said}")
        fetched.replace(archive)


def _unpack(archive: Path, home: Path) -> None:
    """Unpack beside the final place and rename: a folder of that name is always complete."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        try:
            with zipfile.ZipFile(archive) as content:
                content.extractall(scratch)  # zipfile strips absolute and parent paths
        except zipfile.BadZipFile as error:
            raise LabError(f"{archive} is not a whole archive ({error}): delete it and try again") from error
        unpacked = Path(scratch) / home.name
        if not (unpacked / "lib").is_dir():
            raise LabError(f"{archive} holds no {home.name}/lib: delete it and try again")
        unpacked.replace(home)
