"""The same thing on many hosts at once, with one limit for all of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeVar

from orchestrator.model.reading import Seconds

MAX_AT_ONCE: Final = 32
"""Log-ins cost both sides some milliseconds of arithmetic; more at once only wait for each other."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def in_parallel(work: Mapping[K, Callable[[], V]], *, timeout: Seconds) -> Mapping[K, V]:
    """Run all of them; the results that were there at the limit. Whatever still runs is left to itself.

    Daemon threads rather than a pool: a name server or a host that hangs must not keep the program alive.

    Raises:
        Exception: what one of them raised, which is a defect: faults of a host are data.
    """
    results: dict[K, V] = {}
    defects: list[BaseException] = []
    lock, turn = threading.Lock(), threading.Semaphore(MAX_AT_ONCE)
    left, over = len(work), threading.Event()

    def run(key: K, do: Callable[[], V]) -> None:
        nonlocal left
        try:
            with turn:
                result = do()
            with lock:
                results[key] = result
        except Exception as error:  # noqa: BLE001  (raised again below, in the caller's thread)
            defects.append(error)
        finally:
            with lock:
                left -= 1
                if left == 0:
                    over.set()

    if len(work) == 1:  # the usual case while a node is down: no thread is needed
        return {key: do() for key, do in work.items()}
    for key, do in work.items():
        threading.Thread(target=run, args=(key, do), name=f"host-{key}", daemon=True).start()
    if work:
        over.wait(timeout)
    with lock:
        if defects:
            raise defects[0]
        return dict(results)
