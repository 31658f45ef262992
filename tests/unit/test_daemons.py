"""Work in daemon threads: whoever waits may stop waiting."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from orchestrator.daemons import Daemons, in_parallel

LIMIT_SECONDS = 20.0
HANGS = """
import threading
from orchestrator.daemons import Daemons
begun = threading.Event()

def hang():
    begun.set()
    threading.Event().wait()

with Daemons(1, "hangs") as daemons:
    daemons.submit(hang)
    daemons.submit(hang)
begun.wait()
"""


def test_neither_leaving_nor_the_end_waits_for_what_hangs() -> None:
    subprocess.run([sys.executable, "-c", HANGS], check=True, timeout=LIMIT_SECONDS)  # noqa: S603  (our own)


def test_only_so_many_run_at_once_and_a_cancelled_one_never() -> None:
    go, begun, lock = threading.Event(), threading.Semaphore(0), threading.Lock()
    running, most, ran = 0, 0, []

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        begun.release()
        go.wait(LIMIT_SECONDS)
        with lock:
            running -= 1
            ran.append(number)
        return number

    daemons = Daemons(2, "few")
    futures = [daemons.submit(work, number) for number in range(5)]
    assert begun.acquire(timeout=LIMIT_SECONDS)
    assert begun.acquire(timeout=LIMIT_SECONDS)
    waiting = next(future for future in futures if future.cancel())
    go.set()
    done = {future.result(LIMIT_SECONDS) for future in futures if future is not waiting}
    assert (most, len(done), sorted(ran)) == (2, 4, sorted(done))


def test_what_is_not_there_at_the_limit_is_left() -> None:
    go = threading.Event()
    work = {"quick": lambda: True, "slow": lambda: go.wait(LIMIT_SECONDS)}
    try:
        assert in_parallel(work, timeout=1.0) == {"quick": True}
    finally:
        go.set()


def test_a_defect_in_one_of_them_is_raised() -> None:
    def broken() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_parallel({"broken": broken, "sound": lambda: 1}, timeout=LIMIT_SECONDS)
