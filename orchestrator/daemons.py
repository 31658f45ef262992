"""Work in daemon threads: a caller may stop waiting for it, and it does not keep the program alive.

A name server, a host or a command that hangs has limits of its own, and some are minutes. The threads of
`ThreadPoolExecutor` are waited for when it is left and again when the interpreter ends; these are not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor, Future, wait
from typing import Any, Final, ParamSpec, TypeVar

MAX_AT_ONCE: Final = 32
"""Log-ins cost both sides some milliseconds of arithmetic; more at once only wait for each other."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = ParamSpec("P")


class Daemons(Executor):
    """An executor with a thread for each piece of work. Leaving it waits for nothing.

    Args:
        at_once: pieces that run at a time; the others wait for their turn.
        name: of the threads.
    """

    def __init__(self, at_once: int, name: str) -> None:
        self._turns = threading.Semaphore(at_once)
        self._name = name

    def submit(self, fn: Callable[P, V], /, *args: P.args, **kwargs: P.kwargs) -> Future[V]:
        """Begin it as soon as it is its turn; the future has what it returned or raised."""
        future: Future[V] = Future()

        def work() -> None:
            with self._turns:
                if not future.set_running_or_notify_cancel():
                    return
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001  (raised again where the result is asked for)
                    future.set_exception(error)

        threading.Thread(target=work, name=self._name, daemon=True).start()
        return future


def in_parallel(work: Mapping[K, Callable[[], V]], *, timeout: float) -> Mapping[K, V]:
    """Run all of them; the results that were there at the limit. Whatever still runs is left to itself.

    One alone is run in this thread, for as long as it takes: what is done on a host has a limit of its own.

    Args:
        work: by the name of its result.
        timeout: the limit for all of it, in seconds.

    Raises:
        Exception: what one of them raised, which is a defect: faults of a host are data.
    """
    if len(work) == 1:  # the usual case while a node is down: no thread is needed
        return {key: do() for key, do in work.items()}
    daemons = Daemons(MAX_AT_ONCE, "host")
    begun: dict[K, Future[Any]] = {key: daemons.submit(do) for key, do in work.items()}
    done = wait(begun.values(), timeout).done
    return {key: future.result() for key, future in begun.items() if future in done}
