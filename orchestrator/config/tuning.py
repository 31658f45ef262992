"""The tuning profile: the wanted settings of the hosts' kernels and services, with reasons and sources.

The tunables and their rules are defined elsewhere; the composition of the program passes the rules in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictStr,
    Tag,
    WithJsonSchema,
)

from orchestrator.config.faults import Faults, near, validate
from orchestrator.config.spec import LONG_FORM, MAPPING, SCALAR, Name, Spec, Unset, matching
from orchestrator.config.which_file import FileKind, read_as
from orchestrator.config.yaml import Document
from orchestrator.model.tuning import OnFailure, TuningProfile, TuningSetting, Wanted

Rules: TypeAlias = Mapping[str, Callable[[TuningSetting], str | None]]
"""By tunable, in the order of application: the fault of a setting, or None."""

_LONG: Final = frozenset({"value", "why", "source", "on_failure"})


def _word(value: object) -> object:
    """Turn a whole number into text; refuse `true`, which no tunable accepts."""
    if isinstance(value, bool | float):
        raise ValueError("must be a word or a whole number (YAML 1.2 takes on and off for words)")  # noqa: TRY004  (pydantic turns this one into a fault of the file)
    return str(value) if isinstance(value, int) else value


Word = Annotated[
    StrictStr,
    BeforeValidator(_word),
    Field(min_length=1, max_length=200),
    WithJsonSchema({"type": ["string", "integer"], "title": "word or number"}),
]
DeviceName = Annotated[
    Name,
    matching(r"[A-Za-z0-9!_.-]+", "must be a disk's name in /sys/block, such as sdb, without a path"),
]


class DiskKindsSpec(Spec):
    """A value for each kind of disk."""

    ssd: Unset[Word] = Field(default=None, description="For disks without moving parts.")
    rotational: Unset[Word] = Field(default=None, description="For spinning disks.")


def _scalar_or_kinds(value: object) -> str:
    return MAPPING if isinstance(value, dict | DiskKindsSpec) else SCALAR


def _form(value: object) -> str:
    if isinstance(value, SettingSpec) or (isinstance(value, dict) and _LONG & value.keys()):
        return LONG_FORM
    return _scalar_or_kinds(value)


Value = Annotated[
    Annotated[Word, Tag(SCALAR)] | Annotated[DiskKindsSpec, Tag(MAPPING)], Discriminator(_scalar_or_kinds)
]


class SettingSpec(Spec):
    """A setting with its reason."""

    value: Value = Field(description="The wanted value, or one for each kind of disk.")
    why: str = Field(default="", max_length=1000, description="The reason, for people.")
    source: str = Field(default="", max_length=1000, description="The source.")
    on_failure: Unset[Literal["stop", "warn"]] = Field(
        default=None,
        description="As `on_failure` of the profile, for this setting.",
    )


Setting = Annotated[
    Annotated[Word, Tag(SCALAR)]
    | Annotated[DiskKindsSpec, Tag(MAPPING)]
    | Annotated[SettingSpec, Tag(LONG_FORM)],
    Discriminator(_form),
]


class TuningSpec(Spec):
    """A tuning profile."""

    applies_to: Name = Field(description="Kind of store that it is for.")
    settings: dict[str, Setting] = Field(
        description="By tunable (see the page on host tuning): a value, one for each kind of disk,"
        " or the long form below."
    )
    persist: StrictBool = Field(default=True, description="Whether values are also set at the next boot.")
    on_failure: Literal["stop", "warn"] = Field(
        default="warn",
        description="If a value cannot be set: `stop`, the run stands down; `warn`, it continues. The"
        " node is started in both cases.",
    )
    devices: dict[DeviceName, Literal["ssd", "rotational"]] = Field(
        default_factory=dict, description="By name of a disk: its kind, if the kernel reports the wrong one."
    )


def load_profile(path: Path, *, rules: Rules, name: str | None = None) -> TuningProfile:
    """Read a tuning profile; the default name is that of its file.

    Its settings are in the order of the rules, which is the order of application.

    Raises:
        ConfigError: file, line and key of every fault.
    """
    return check_profile(read_as(FileKind.TUNING, path), rules=rules, name=name or path.stem)


def check_profile(document: Document, *, rules: Rules, name: str) -> TuningProfile:
    """Check a document that was already read; raises as `load_profile` does."""
    spec = validate(TuningSpec, document)
    usual = OnFailure(spec.on_failure)
    settings = {tunable: _setting(tunable, written, usual) for tunable, written in spec.settings.items()}
    faults = Faults(document)
    if not settings:
        faults.add(("settings",), "must not be empty")
    for tunable, setting in settings.items():
        path = ("settings", tunable)
        rule = rules.get(tunable)
        if rule is None:
            faults.add(("settings",), f"unknown tunable `{tunable}`; {near(tunable, rules)}", at=path)
            continue
        wrong = rule(setting)
        if wrong is not None:
            long_form = isinstance(spec.settings[tunable], SettingSpec)
            faults.add((*path, "value") if long_form else path, wrong)
    faults.raise_any()
    return TuningProfile(
        name=name,
        applies_to=spec.applies_to,
        settings=tuple(settings[tunable] for tunable in rules if tunable in settings),
        persist=spec.persist,
        devices=dict(spec.devices),
    )


def _setting(tunable: str, written: str | DiskKindsSpec | SettingSpec, usual: OnFailure) -> TuningSetting:
    if not isinstance(written, SettingSpec):
        return TuningSetting(tunable=tunable, wanted=_wanted(written), on_failure=usual)
    return TuningSetting(
        tunable=tunable,
        wanted=_wanted(written.value),
        on_failure=OnFailure(written.on_failure) if written.on_failure else usual,
        why=str(written.why),
        source=str(written.source),
    )


def _wanted(value: str | DiskKindsSpec) -> Wanted:
    if isinstance(value, str):
        return str(value)
    return {kind: str(word) for kind, word in (("ssd", value.ssd), ("rotational", value.rotational)) if word}
