"""What `riak admin` prints of ring, members, transfers and limits, byte for byte as recorded on 3.2.1."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

from .report import Transfer, View

WIDTH = 79
RULE = "-" * WIDTH
BAR = 43
"""The width of a transfer's progress bar."""
BOX = 62
"""The width of the four lines around it."""
MEGABYTES_AN_OBJECT = 20.35 / 425
"""As in the one recording that has both rates; the double's objects are all of that size."""
UNREACHABLE = """\
WARNING: The cluster state will not converge until all nodes
are up. Once the above nodes come back online, convergence
will continue. If the outages are long-term or permanent, you
can either mark the nodes as down (riak-admin down NODE) or
forcibly remove the nodes from the cluster (riak-admin
force-remove NODE) to allow the remaining nodes to settle.
"""
LIMIT_NOTE = """\
Note: You can change transfer limits with 'riak-admin transfer_limit <limit>'
      and 'riak-admin transfer_limit <node> <limit>'
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command's function printed, and the term that it returned."""

    text: str  # with its line ends
    # what 3.2 prints as the last line: `ok`, `error`, `{error,1}`; None for none at all
    term: str | None = "ok"

    @property
    def whole(self) -> str:
        """All that is printed."""
        return self.text + (f"{self.term}\n" if self.term else "")


def title(words: str) -> str:
    """A line with a heading in its middle."""
    return f"{f' {words} ':=^{WIDTH}}"


def percent(value: float) -> str:
    """One decimal, rounded half up as Erlang does: 31.25 is 31.3."""
    return f"{math.floor(value * 10 + 0.5) / 10:.1f}"


def atoms(names: Iterable[str], *, column: int) -> str:
    """An Erlang list of node names as `~p` prints it: wrapped before 80 columns, under its first element."""
    quoted = [f"'{name}'" for name in names]
    lines, line = [], "["
    for number, word in enumerate(quoted):
        more = f"{word}{']' if number == len(quoted) - 1 else ','}"
        if len(line) > 1 and column + len(line) + len(more) > 80:
            lines.append(line)
            line = " "
        line += more
    lines.append(line if quoted else "[]")
    return f"\n{' ' * column}".join(lines)


def ringready(view: View) -> Said:
    """`ringready`: the rings of the nodes are the same."""
    if view.down:
        names = atoms(view.down, column=len("FALSE "))
        return Said(f"FALSE {names} down.  All nodes need to be up to check.\n", "error")
    start = "TRUE All nodes agree on the ring "
    return Said(f"{start}{atoms(view.ring.members, column=len(start))}\n")


def claimant_is_up(view: View) -> bool:
    """As the ring does not change, it is ready then."""
    return view.report(view.ring.claimant) is not None


def transfers(view: View) -> Said:
    """`transfers`.

    No recording has a node with both partitions that do not run and partitions that wait; the double prints
    both lines then.
    """
    parts = []
    if view.down:
        names = atoms(view.down, column=len("Nodes "))
        parts.append(f"Nodes {names} are currently down.\n")
    lines = []
    for report in reversed(view.reports):
        if report.missing:
            lines.append(f"'{report.name}' does not have {report.missing} primary partitions running\n")
        if report.waiting:
            lines.append(f"'{report.name}' waiting to handoff {report.waiting} partitions\n")
    parts.extend(lines or ["No transfers active\n"])
    parts.append("\nActive Transfers:\n\n")
    parts.extend(_transfer(view, each) for report in view.reports for each in report.transfers)
    parts.append("\n")
    parts.extend(f"Node '{name}' could not be contacted\n" for name in view.down)
    return Said("".join(parts))


def _transfer(view: View, transfer: Transfer) -> str:
    if transfer.update_age is None:
        update, total, sent, share, objects, size = "no updates seen", "unknown", "unknown", 0.0, None, None
    else:
        update = _moment(transfer.started + transfer.age - transfer.update_age, transfer.update_age)
        total, sent = f"{transfer.total} objects", str(transfer.sent)
        share = transfer.sent / max(1, transfer.total)
        objects = f"{transfer.rate} Objs/s"
        size = f"{transfer.rate * MEGABYTES_AN_OBJECT:.2f} MB/s"
    done = int(100 * share)
    # The names are of one length in the recording; how others are laid out is a guess.
    way = f"{transfer.source:^24}   =======>  {_centred(transfer.target, 25)}"
    return (
        "transfer type: hinted\n"
        "vnode type: riak_kv_vnode\n"
        f"partition: {view.ring.index(transfer.partition)}\n"
        f"started: {_moment(transfer.started, transfer.age)}\n"
        f"last update: {update}\n"
        f"total size: {total}\n"
        f"objects transferred: {sent}\n\n"
        f"{_centred(objects or 'unknown', BOX)}\n"
        f"{way}\n"
        f"        |{'=' * int(BAR * done / 100):<{BAR}}|{done:>4}%    \n"
        f"{_centred(size or 'unknown', BOX)}\n\n"
    )


def _centred(text: str, width: int) -> str:
    """With the odd space on the right, as recorded."""
    left = max(0, (width - len(text)) // 2)
    return f"{' ' * left}{text}".ljust(width)


def _moment(stamp: float, ago: float) -> str:
    """Durations of a minute and more were not recorded; the double goes on in seconds."""
    since = f"{ago:.2f} s" if ago >= 1 else f"{ago * 1000:.2f} ms"
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(stamp))} [{since} ago]"


def transfer_limit(view: View) -> Said:
    """`transfer-limit` without words."""
    rows = [f"    {report.transfer_limit}        '{report.name}'\n" for report in view.reports]
    rows.extend(f"(offline)    '{name}'\n" for name in view.down)
    head = f"{title('Transfer Limit')}\nLimit        Node\n{RULE}\n"
    return Said(f"{head}{''.join(rows)}{RULE}\n{LIMIT_NOTE}")
