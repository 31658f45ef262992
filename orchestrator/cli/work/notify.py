"""Sends a test message to every target. Hooks of a run are not run: they may act on what they are given."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from orchestrator.around.outbox import SEND_SECONDS, Outbox
from orchestrator.around.story import Message
from orchestrator.around.ways import sends
from orchestrator.cli.context import context_of
from orchestrator.cli.options import Output
from orchestrator.config.playbook import around_in
from orchestrator.config.policy import require_playbook
from orchestrator.errors import ExitCode, UsageError
from orchestrator.view.text import counted, stamp

_RUN: Final = "test"
_TEXT: Final = "a test message; nothing was restarted"


def send_tests(cluster: str, *, playbook: str | None, output: Output) -> int:
    """Send them in parallel, and print what became of each. Returns the exit code."""
    context = context_of(output)
    file = context.cluster(cluster)
    book = context.files.playbook(playbook or file.spec.playbook)
    require_playbook(file, book)
    targets = around_in(file, book).targets
    if not targets:
        raise UsageError(f"neither {file.path} nor playbook {book.name} has `notify`: nothing can be sent")
    ports = context.ports(file)
    line = {"ts": stamp(context.clock.now()), "run": _RUN, "sequence": 0, "event": "test"}
    message = Message(on="test", of=0, text=_TEXT, line=line)
    ended: list[Mapping[str, object]] = []
    try:
        run_context = replace(ports.run_context, run=_RUN)
        boxes = [Outbox(target.name, sends(target, run_context), ended.append) for target in targets]
        for box in boxes:
            box.put(message)
            box.close(time.monotonic() + SEND_SECONDS + 1)
        for box in boxes:
            box.join()
    finally:
        ports.close()
    for one in ended:
        if context.output is Output.JSON:
            context.say_json(one)
        else:
            context.say(f"BAD  {one['target']}: {one['why']}" if "why" in one else f"ok   {one['target']}")
    bad = sum("why" in one for one in ended)
    if context.output.for_people:
        context.say(f"{counted(bad, 'message')} not sent" if bad else "all messages were sent")
    return int(context.end(ExitCode.HELD if bad else ExitCode.DONE, bad=bad))
