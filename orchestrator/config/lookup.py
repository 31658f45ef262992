"""Find cluster files, playbooks and tuning profiles by name. A path is used unchanged.

In this order: `./configs`, `$ORCHESTRATE_CONFIG`, `~/.config/orchestrate`, `/etc/orchestrate`, each with its
folder `clusters`, `playbooks` or `tuning`; then, but for clusters, those shipped with the package. A bare
`./playbooks` is not looked at: in an operator's repository it belongs to Ansible.
"""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Final

from orchestrator.errors import ConfigError

SUFFIX: Final = ".yml"
ABSENT: Final = "is not there"
URLS: Final = "URLs of a cluster are the `endpoints` of its cluster file"
_MOST_NAMES: Final = 12
"""Maximum of names in a message."""


class KindOfFile(Enum):
    """The kind of file; the value is its folder."""

    CLUSTER = "clusters"
    PLAYBOOK = "playbooks"
    TUNING = "tuning"

    @property
    def what(self) -> str:
        """The name of the kind in messages."""
        return "tuning profile" if self is KindOfFile.TUNING else self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Folders to search, each with `clusters`, `playbooks` and `tuning` below it."""

    folders: tuple[Path, ...]  # in order; the first file found is taken
    shipped_playbooks: Path  # those of the package
    shipped_tuning: Path  # likewise
    shipped_clusters: Path  # the examples of the package; shown in messages, never used

    def of(self, wanted: KindOfFile) -> tuple[Path, ...]:
        """Folders to search for one kind of file, in order."""
        folders = tuple(folder / wanted.value for folder in self.folders)
        match wanted:
            case KindOfFile.CLUSTER:
                return folders
            case KindOfFile.PLAYBOOK:
                return (*folders, self.shipped_playbooks)
            case KindOfFile.TUNING:
                return (*folders, self.shipped_tuning)


def standard_places(environment: Mapping[str, str], *, home: Path) -> Places:
    """The folders to search, for a process with this environment in its current folder."""
    configured = environment.get("ORCHESTRATE_CONFIG")
    folders = [
        Path("configs"),
        *([Path(configured)] if configured else []),
        home / ".config" / "orchestrate",
        Path("/etc/orchestrate"),
    ]
    return Places(
        folders=tuple(folders),
        shipped_playbooks=shipped("playbooks"),
        shipped_tuning=shipped("configs") / "tuning",
        shipped_clusters=shipped("configs") / "clusters",
    )


def shipped(folder: str) -> Path:
    """The package's own `playbooks` or `configs`.

    An installed package has them under `_shipped`, where the build puts them; a checkout at its root.
    """
    package = Path(str(resources.files("orchestrator")))
    installed = package / "_shipped" / folder
    return installed if installed.is_dir() else package.parent / folder


def is_shipped(path: Path) -> bool:
    """Whether a file is one of the package's own."""
    return any(path.resolve().is_relative_to(shipped(folder)) for folder in ("playbooks", "configs"))


def find(wanted: KindOfFile, name: str, places: Places) -> Path:
    """Find a cluster file, a playbook or a tuning profile by name or path.

    Raises:
        ConfigError: there is none; the message lists the searched places and similar names.
    """
    what = wanted.what
    if re.match(r"[a-z]+://", name):  # not shown: it may hold a password
        raise ConfigError(f"a URL is not the name of a {what}: name its file. {URLS}")
    if is_path(name):
        trouble = trouble_with(Path(name))
        if trouble is not None:
            raise ConfigError(f"there is no such {what} file" if trouble == ABSENT else trouble, file=name)
        return Path(name)
    if re.fullmatch(r"[\w.-]+", name) is None:
        one = "; name one" if "," in name else ""
        raise ConfigError(f"{name!r} is neither the name of a {what} nor the path of a {SUFFIX} file{one}")
    candidates = [folder / f"{name}{SUFFIX}" for folder in places.of(wanted)]
    looked: dict[Path, str] = {}
    for candidate in candidates:
        trouble = trouble_with(candidate)
        if trouble is None:
            return candidate
        looked[candidate] = trouble
    raise ConfigError(_nowhere(wanted, name, looked, places))


def folder_of_new(places: Places) -> Path:
    """Where new cluster files go: the first folder that is looked at and exists.

    If none exists: the folder of `$ORCHESTRATE_CONFIG` where that is set, that of the home otherwise.
    """
    folders = places.of(KindOfFile.CLUSTER)
    _, named_or_home, *_ = folders
    return next((folder for folder in folders if folder.is_dir()), named_or_home)


def place_of_new(name: str, places: Places) -> Path:
    """Where a new cluster file of that name goes.

    Raises:
        ConfigError: the name cannot be looked up, or one of the folders has a file of that name.
    """
    if is_path(name) or re.fullmatch(r"\w[\w.-]*", name) is None:
        raise ConfigError(
            f"{name!r} cannot be the name of a cluster file: use letters, digits, `.`, `_` and `-`, without"
            f" {SUFFIX}; `--out PATH` writes to any place"
        )
    for path in (folder / f"{name}{SUFFIX}" for folder in places.of(KindOfFile.CLUSTER)):
        trouble = trouble_with(path)
        if trouble != ABSENT:
            said = trouble or "exists"
            raise ConfigError(
                f"{said}; nothing is overwritten: choose another name, or move the file away", file=str(path)
            )
    return folder_of_new(places) / f"{name}{SUFFIX}"


def trouble_with(path: Path) -> str | None:
    """Why this file cannot be read; None if it can. Never raises: the next place may have the name."""
    try:
        kind = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:
        return f"is not accessible: {error.strerror}"
    except ValueError:
        return "is no path: it holds a null character"
    if stat.S_ISDIR(kind):
        return "is a directory"
    return None if stat.S_ISREG(kind) else "is no regular file"


def is_path(name: str) -> bool:
    """Whether this is a path rather than a name: it holds a slash, or ends as a YAML file does."""
    return "/" in name or name.endswith((SUFFIX, ".yaml"))


def names(wanted: KindOfFile, places: Places) -> list[str]:
    """All that can be found by name, in order."""
    return sorted({file.stem for folder in places.of(wanted) for file in _files(folder)})


def _nowhere(wanted: KindOfFile, name: str, looked: Mapping[Path, str], places: Places) -> str:
    what, known = wanted.what, names(wanted, places)
    where = ", ".join(f"{path}" + ("" if why == ABSENT else f" ({why})") for path, why in looked.items())
    message = f"there is no {what} {name!r} (looked for {where})"
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return f"{message}; did you mean {' or '.join(close)}?"
    if known:
        return f"{message}; known: {', '.join(known[:_MOST_NAMES])}"
    example = places.shipped_clusters / "example.yml"
    new = "write one with `orchestrate init --endpoint URL`, or copy an example"
    return f"{message}; {new}: {example}; beside it are riak-example.yml and hosts-example.yml"


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.glob(f"*{SUFFIX}"))
    except OSError:
        return []  # a folder that cannot be listed has no names here; the search has already reported it
