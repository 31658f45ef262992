"""Every recorded text is printed by the double, brought into the state that was recorded.

The rule is equality: the same bytes and the same exit code. What varies between two recordings of one state
(names, counts, moments, the process number) belongs to the state, and `staging.py` sets it. Two kinds of
lines are left out of the comparison, and only they: the random bytes of a vnode's id, and a path with the
time of day that `chkconfig` prints.
"""

from __future__ import annotations

import re
import shlex

import pytest

from tests.doubles.riak_double.commands import answer
from tests.doubles.riak_double.versions import dialect
from tests.riak_transcripts import COMMANDS, TIMELINE, Recording, recordings
from tests.unit.riak_double.staging import staged

ALL = [*recordings(COMMANDS), *recordings(TIMELINE)]
OF_THE_PROGRAM = re.compile(
    r"riak (daemon|start|stop|versions|config effective|chkconfig)|riak admin wait-for-service .*"
)
"""What the program says by itself or loops on: `test_recorded_program.py` has these."""
DOWN = {"stopped", "stoppedgen", "killed"}
OF_A_RUNNING_NODE = [
    each for each in ALL if each.state not in DOWN and not OF_THE_PROGRAM.fullmatch(each.command)
]


def printed(recording: Recording) -> tuple[str, int]:
    words = shlex.split(recording.command.removeprefix("riak ").replace("['", "[\\'").replace("']", "\\']"))
    said = answer(words, staged(recording)).said
    riak = dialect("3.2.1")
    return riak.text(said), riak.code(said)


def without_vnode_ids(text: str) -> str:
    return re.sub(r"(?m)^\{vnodeid,<<.*>>\}$", "{vnodeid,<<…>>}", text)


@pytest.mark.parametrize("recording", OF_A_RUNNING_NODE, ids=lambda each: each.name)
def test_a_running_node_answers_as_recorded(recording: Recording) -> None:
    text, code = printed(recording)
    assert without_vnode_ids(text) == without_vnode_ids(recording.output)
    assert code == (recording.code or 0)


def test_the_recordings_are_all_there() -> None:
    assert (len(ALL), len(OF_A_RUNNING_NODE)) == (537, 499)
