"""A run was killed, and its cluster grants no lease: it has no master, or it refuses the credentials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from orchestrator.errors import LeaseError, NotRestored
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import Deadlines
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.lease import LeaseRefused, LeaseUnreachable, WatchInterrupted
from orchestrator.simulation import machines, mishaps
from tests.simulation.play import policy
from tests.simulation.program_mishaps import CredentialsRefused
from tests.simulation.scene import (
    ALLOCATION,
    ES1,
    ES2,
    ES3,
    FAILED,
    RESTORED,
    Command,
    Played,
    Scene,
    Step,
    command,
    first,
    set_node,
)

LIMITS: Final = policy(deadlines=Deadlines(start=120.0, rejoin=120.0, hold=240.0))
STOPPED: Final = "after the commit of action_confirmed#4"
"""The first node is down, and the journal tells of it."""
DOWN: Final = (
    "after stop of es2",
    STOPPED,
    "after the commit of phase_entered, phase_entered, action_sent",
)
DIED: Final[tuple[Step, ...]] = (20.0, mishaps.NodeDies(node=ES1), 20.0)
BOTH_DIED: Final[tuple[Step, ...]] = (20.0, mishaps.NodeDies(node=ES1), mishaps.NodeDies(node=ES3), 20.0)
LINE: Final = "https://es1:9200 refused user ops (401; secret from env:ES_PASSWORD)"
UNSET: Final = "set to primaries by the run; was not set before"
LEFT: Final = (
    f"{LINE}\n  NOT RESTORED: setting {ALLOCATION} (persistent): {UNSET}\n",
    "\n  NOT RESTORED: node es2: started over SSH, not seen in the cluster\n",
)
REFUSED: Final[tuple[Step, ...]] = (100.0, CredentialsRefused(seconds=3000.0))


def in_seconds(seconds: float, do: Callable[[Played], object]) -> Callable[[Played], None]:
    """Something happens so long after this moment."""
    return lambda played: played.world.agenda.after(seconds, lambda: do(played))


def _starts_es1(played: Played) -> None:
    machines.start(played.world, played.world.nodes[ES1])


def _asks_to_stop(played: Played) -> None:
    played.simulation.fate.request = Request.STOP


def _elected_soon(played: Played) -> None:
    """The majority was back long before anybody else did something."""
    (since,) = (at for at, what in played.world.story if what == "mishap: " + str(mishaps.NodeDies(node=ES1)))
    elected = next(at for at, what in played.world.story if at > since and "is elected" in what)
    assert elected - since < 120.0 + 20.0
    assert sum("starting es2, which run run-1 stopped" in line for line in played.said) == 1


def _of_another(played: Played, **changes: object) -> LeaseRecord:
    """A record of a run of another machine, which took this one over."""
    theirs = {"epoch": 2, "run": "run-9", "owner": "ben@bastion2", "process": "bastion2/1/1/1", **changes}
    return replace(played.simulation.record, **theirs)


def _lives_elsewhere(played: Played) -> None:
    """Before the master was lost: this machine cannot know of it."""
    records, beats = played.simulation.common.records, iter(range(1, 10_000))

    def beat() -> None:
        records[2] = _of_another(played, heartbeat=next(beats))
        played.world.agenda.after(1.0, beat)

    beat()


def _dead_elsewhere(played: Played) -> None:
    played.simulation.common.records[2] = _of_another(played)


def _here(played: Played, *, later: int = 0, **changes: object) -> None:
    """The lease in the state of this machine is another one's."""
    lease = played.simulation.own_lease
    assert lease.in_force is not None
    epoch = lease.in_force.epoch + later
    lease.records[epoch] = replace(lease.in_force, **{"epoch": epoch, **changes})


def _at_work_here(played: Played) -> None:
    _here(played, process="bastion/1/99/1")
    played.simulation.common.alive.add("bastion/1/99/1")


def _restored_by_another(played: Played) -> None:
    with played.simulation.connect() as connection, connection.state(DatabaseUse.CONTINUE) as store:
        store.close_run("run-1", Outcome.RESTORED, connection.process.now)


def _another_took_over(played: Played) -> None:
    _here(played, later=1, run="run-2", owner="ben@bastion2")


def _told_of_the_wait(played: Played) -> None:
    waits = sum(line.startswith("waiting for a master") for line in played.said)
    assert abs(waits - 240 / 15) <= 3


def _all_left(played: Played, verb: str) -> None:
    assert played.said
    assert not [line for line in played.said if "a master" in line]
    assert f"once the credentials are accepted: orchestrate {verb} run-1" in played.refused
    assert played.refused.count("NOT RESTORED: ") == 5


def without_master(name: str, *then: Step, **more: object) -> Scene:
    """Killed with its first node down; then so many others die that there is no majority."""
    return Scene(**{"name": f"no master: {name}", "wanted": LIMITS, "killed": STOPPED, "then": then, **more})


def _refused(raises: type[LeaseError], says: str, *, verb: str = "resume", **more: object) -> Command:
    return command(verb, raises=raises, says=says, **{"away": None, **more})


# fmt: off
_WITHOUT_MASTER: Final = (
    *(
        without_master(f"{verb} starts a voter of the run before it holds the lease, killed {point}",
            *DIED, in_seconds(600.0, _starts_es1),
            command(verb, ends=ends, away=[ES1], tells=["waiting for a master: 503"]),
            killed=point, shows=_elected_soon)
        for verb, ends in (("resume", FAILED), ("restore", RESTORED)) for point in DOWN
    ),
    without_master("only starts are sent while another machine, which took over, lives",
        *DIED, _lives_elsewhere,
        _refused(LeaseError, "run run-9 of ben@bastion2", starts=[ES2])),
    without_master("a start that fails once is sent again",
        *DIED, set_node(ES2, starts_that_fail=1), command("resume", ends=FAILED, away=[ES1])),
    without_master("starts that bring none end in a named refusal, and a resume goes on later",
        *BOTH_DIED,
        _refused(LeaseUnreachable, "no master was elected within 240 s after the start of es2 (503 ",
            within=360.0),
        _told_of_the_wait, lambda played: played.world.nodes[ES2].process, _starts_es1, 120.0,
        command("resume", ends=FAILED, away=[ES3])),
    without_master("a signal ends the wait for one",
        *BOTH_DIED, in_seconds(100.0, _asks_to_stop), _refused(WatchInterrupted, "", within=110.0)),
    without_master("a takeover in the state of this machine ends the wait",
        *BOTH_DIED, in_seconds(70.0, _another_took_over),
        _refused(LeaseError, "run run-2 of ben@bastion2 took over", starts=[ES2])),
    *(
        without_master(f"no node is started that may be another run's: {name}",
            *DIED, does, _refused(raises, "", starts=[]))
        for name, does, raises in (
            ("restored by another", _restored_by_another, LeaseUnreachable),
            ("at work on this machine", _at_work_here, LeaseError),
            ("another run here since", _another_took_over, LeaseUnreachable),
        )
    ),
    without_master("a run that stopped no node starts none",
        *BOTH_DIED, _refused(LeaseUnreachable, "can be neither read nor taken", starts=[]),
        killed="before the commit of taken_down"),
    without_master("a dead run elsewhere is restored once there is one",
        *DIED, _dead_elsewhere,
        command("restore", away=[ES1],
            tells=["left by run run-9 of ben@bastion2; this run restores it first"]),
        shows=lambda played: played.simulation.leases.in_force is None),
    *(
        without_master(f"a FAILED node is started if people ask for it, --retry-failed {asked}",
            set_node(ES2, starts_that_fail=0), mishaps.NodeDies(node=ES1), 30.0, goes_on,
            befalls=[first(mishaps.StartsFail(node=ES2, times=10))], killed="", ends=FAILED, away=[ES2],
            shows=lambda played, asked=asked: played.world.nodes[ES2].process is asked)
        for asked, goes_on in (
            (False, _refused(LeaseUnreachable, "")),
            (True, command("resume", retry_failed=True, ends=FAILED, away=[ES1])),
        )
    ),
)
_CREDENTIALS: Final = (
    *(
        Scene(name=f"credentials refused: {verb} starts the node that is down, and lists what is left",
            killed=STOPPED,
            then=[
                *REFUSED,
                command(verb, raises=NotRestored, says=LEFT, starts=[ES2], within=15.0, away=None,
                    tells=["starting es2"]),
                lambda played, verb=verb: _all_left(played, verb), 3000.0, command("restore"),
            ])
        for verb in ("restore", "resume")
    ),
    Scene(name="credentials refused: a start that fails meanwhile is sent again",
        killed=STOPPED,
        then=[
            *REFUSED, set_node(ES2, starts_that_fail=1),
            command("restore", raises=NotRestored, away=None), 30.0,
        ]),
    Scene(name="credentials refused: a node that does not start is listed as down",
        killed=STOPPED,
        then=[
            *REFUSED, set_node(ES2, starts_that_fail=9),
            command("restore", raises=NotRestored, says="  NOT RESTORED: node es2: down", away=[ES2],
                tells=["es2: failed (Result: exit-code)"]),
        ]),
    Scene(name="credentials refused: a signal ends the wait for a node to start",
        killed=STOPPED,
        then=[
            *REFUSED, mishaps.HostCutOff(node=ES2, seconds=9000.0), in_seconds(100.0, _asks_to_stop),
            command("restore", raises=WatchInterrupted, tells=["waiting for es2 to start"], within=130.0,
                away=[ES2]),
        ]),
    *(
        Scene(name=f"credentials refused: {verb} without a change is a usage error",
            killed="after the commit of baseline_recorded",
            then=[*REFUSED, command(verb, raises=LeaseRefused, says="nothing was changed")])
        for verb in ("restore", "resume")
    ),
)
# fmt: on

SCENES: Final = (*_WITHOUT_MASTER, *_CREDENTIALS)
