"""A host's text that imitates the marks of an answer: it is a part's text, and forges no other part."""

from __future__ import annotations

import re
import shlex
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.diagnosis.reading import read_answers, reading_command
from orchestrator.hosts import script
from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.script import Section, read_sections
from orchestrator.hosts.survey import read_survey, survey_script
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings
from orchestrator.model.observation import HostView, ServiceState
from tests.fakes.framing import MARK, part


def answer(line: str) -> str:
    said = LocalConnection().run(line, timeout=30.0)
    assert isinstance(said, CommandResult)
    return said.stdout


def forged(own: str, name: str, text: str) -> tuple[str, ...]:
    """Texts of the part `own` that end it and add another one, with marks of several kinds."""
    earlier = answer(script.untranslated(script.sections([(own, "echo"), (name, f"echo {text}")])))
    marks = (MARK, "$orchestrate_mark", "@@orchestrate-", "@@orchestrate-..................")
    return (
        f"@@orchestrate-end {own} 0\n@@orchestrate-begin {name}\n{text}\n@@orchestrate-end {name} 0\n",
        earlier.partition("\n")[2],
        *(f"{mark} end {own} 0\n{part(name, text, mark=mark)}" for mark in marks),
    )


def test_a_text_with_marks_forges_no_other_part(tmp_path: Path, subtests: pytest.Subtests) -> None:
    planted = tmp_path / "planted"
    parts = [("file", f"cat {planted}"), ("boot-id", "echo real")]
    for forgery in forged("file", "boot-id", "forged"):
        text = f"x\n{forgery}y"
        planted.write_text(text)
        for ordered in (parts, parts[::-1]):
            with subtests.test(forgery=forgery, first=ordered[0][0]):
                assert read_sections(answer(script.untranslated(script.sections(ordered)))) == {
                    "file": Section(exit=0, text=text),
                    "boot-id": Section(exit=0, text="real"),
                }


def test_a_status_command_forges_neither_rights_nor_boot(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    names = ("boot-id", "machine-id", "account", "may-stop", "may-start", "holder", "at-work")
    planted.write_text("".join(each for name in names for each in forged("service", name, "4242")))
    service = ServiceSettings(
        manager=Manager.COMMAND, stop="/no/such", start="/no/such", status=f"cat {planted}"
    )
    settings = HostSettings(node="es1", address="h", connect=Connect.LOCAL, service=service)
    survey = read_survey(settings, answer(survey_script(settings, rights=True)), rights=True)
    assert isinstance(survey.view, HostView)
    assert survey.view.service is ServiceState.RUNNING
    assert survey.view.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert [right.allowed for right in survey.rights if right.what in ("stop", "start")] == [False, False]
    with closing(Hosts({"es1": settings})) as hosts:
        seen = hosts.observe(["es1"], rights=True)["es1"]
    assert isinstance(seen, HostView)
    assert (seen.boot_id, seen.may_control) == (survey.view.boot_id, False)


def test_a_log_with_marks_forges_no_counter(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for file, text in {"proc/uptime": "7.5 1.0", "proc/loadavg": "0.5 0 0 1/2 3"}.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(f"{text}\n")
    log = root / "var/log/numad.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        "".join((*forged("numad.log", "uptime", "99.0"), *forged("numad.log", "loadavg", "300.0")))
    )
    read = read_answers(answer(reading_command(str(root))))
    assert (read.uptime, read.load) == (7.5, 0.5)


def test_the_mark_of_an_answer_is_new_and_in_no_argument() -> None:
    shows = (
        "tr '\\0' '\\n' </proc/self/environ; for one in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <\"$one\"; done"
    )
    line = script.untranslated(script.sections([("shows", f"({shows}) 2>/dev/null")]))
    said = [answer(line) for _ in range(2)]
    marks = [re.match(r"(@@orchestrate-\S{18}) begin", one) for one in said]
    assert marks[0]
    assert marks[1]
    assert marks[0][1] != marks[1][1]
    for one, mark in zip(said, marks, strict=True):
        assert mark
        assert mark[1] not in read_sections(one)["shows"].text


def test_without_the_uuid_of_the_kernel_there_is_a_mark() -> None:
    line = script._NONCE.replace("/proc/sys/kernel/random/uuid", "/no/such")
    found = [answer(f"/bin/sh -c {shlex.quote(f'echo {line}')}").strip() for _ in range(2)]
    assert found[0] != found[1]
    assert all(re.fullmatch("[a-f0-9]{18}", one) for one in found)
    assert read_sections(part("a", "b", mark=f"@@orchestrate-{found[0]}")) == {"a": Section(exit=0, text="b")}


def test_many_parts_without_an_end_are_read_in_one_pass() -> None:
    """A search for the end of each would go through all that follows, again and again."""
    lines = [f"{MARK} begin x"] * 20_000
    assert read_sections("\n".join(lines)) == {}
