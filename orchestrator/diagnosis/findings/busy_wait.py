"""Erlang schedulers that spin while they wait for work, one on every CPU: no CPU is left for other work."""

from __future__ import annotations

from statistics import median
from typing import Final

from orchestrator.model.diagnosis import Confidence, ErlangUse, Finding, Number, Signs, Syndrome
from orchestrator.model.reading import Reading, Unknown

TUNABLE: Final = "erlang.schedulers"
HOT: Final = 0.75
"""Share of one CPU of a scheduler thread: 75 to 95 % in the incident."""
MOST: Final = 0.75
"""This share of the schedulers must be hot: a single hot scheduler is doing real work."""
SLEEPS: Final = 80.0
"""How often a second a hot scheduler releases its CPU by itself. A computing scheduler does so seldom (18 to
60 were measured with OTP 25), one that spins before each of its many sleeps more often (100 to 400)."""
IN_WAIT: Final = 0.10
"""Share of a profile in the scheduler's waiting: 10 to 30 % in the incident."""
_WAITING: Final = ("scheduler_wait", "sched_spin", "sched_prep_spin")
LEAVE_ONE_IN: Final = 6
"""One scheduler less for every six CPUs (12 to 10, 24 to 20) increased throughput by up to 25 %."""


def find(signs: Signs) -> Reading[tuple[Finding, ...]]:
    """One finding per Erlang VM."""
    if isinstance(signs.erlang, Unknown):
        return signs.erlang
    if not signs.erlang:
        return ()
    if isinstance(signs.cpus, Unknown):
        return signs.cpus
    cpus = signs.cpus
    return tuple(finding for vm in signs.erlang if (finding := _of(signs, vm, cpus)) is not None)


def _of(signs: Signs, vm: ErlangUse, cpus: int) -> Finding | None:
    count = len(vm.schedulers)
    hot = [thread for thread in vm.schedulers if thread.cpu >= HOT]
    if count < cpus or len(hot) < MOST * count:
        return None
    sleeps = median(thread.sleeps for thread in hot)
    if sleeps < SLEEPS:
        return None
    wanted = cpus - cpus // LEAVE_ONE_IN
    waiting = _waiting(signs)
    numbers = [
        Number(name="schedulers", value=count, unit="", usual=f"{wanted} on {cpus} CPUs"),
        Number(name=f"of these at {100 * HOT:.0f} % of a CPU and more", value=len(hot), unit="", usual="few"),
        Number(
            name="a scheduler's CPU, median",
            value=100 * median(thread.cpu for thread in hot),
            unit="%",
            usual=f"below {100 * HOT:.0f}",
        ),
        Number(name="while it went to sleep", value=sleeps, unit="/s", usual=f"below {SLEEPS:g}"),
    ]
    if waiting >= IN_WAIT:
        numbers.append(Number(name="profile: waiting for work", value=100 * waiting, unit="%", usual="0"))
    fewer = (
        f"Give the VM {wanted} schedulers, total and online (+S {wanted}:{wanted}): it takes effect when the"
        " node is stopped and started."
    )
    return Finding(
        syndrome=Syndrome.BUSY_WAIT,
        nodes=(signs.node,),
        subject=f"beam {vm.pid}",
        confidence=Confidence.CERTAIN if waiting >= IN_WAIT else Confidence.LIKELY,
        why="the profile shows the schedulers waiting"
        if waiting >= IN_WAIT
        else "hot schedulers that sleep so often spin before each sleep; a profile would prove it",
        numbers=tuple(numbers),
        advice=fewer
        if wanted < count
        else "Too few CPUs to leave one free: have the schedulers not wait busily (+sbwt none).",
        tunable=TUNABLE if wanted < count else None,
    )


def _waiting(signs: Signs) -> float:
    if isinstance(signs.functions, Unknown):
        return 0.0
    return sum(share for name, share in signs.functions.items() if name.startswith(_WAITING))
