"""What commands print that draw tables, byte for byte as on 3.2.1: `cluster status`, `handoff`, `show`."""

from __future__ import annotations

from collections.abc import Sequence

from .report import Report, Transfer, View
from .ring import MODULES
from .texts import Said, percent, ring_ready

HANDOFF_USAGE = """\
Usage: riak-admin handoff <sub-command>

  Display handoff-related status and settings.

  Sub-commands:
    enable     Enable handoffs for the specified node(s)
    disable    Disable handoffs for the specified node(s)
    summary    Show cluster-wide handoff summary
    details    Show details of all active transfers (per-node or cluster wide)
    config     Show all configuration for handoff subsystem

  Use --help after a sub-command for more details.

"""
SUMMARY_USAGE = """\
Usage: riak-admin handoff summary

  Display a summarized view of handoffs.
"""
SUMMARY_HEAD = """\
Each cell indicates active transfers and, in parenthesis, the number of all known transfers.
The 'Total' column is the sum of the active transfers.
"""
KNOWN_KEYS = ("transfer_limit", "handoff.outbound", "handoff.inbound", "handoff.port")
"""The settings that the recordings show; others exist on a real node, and the double calls them invalid."""


def centred(text: str, width: int) -> str:
    """With the odd space on the right, as recorded."""
    left = (width - len(text)) // 2
    return f"{' ' * left}{text}".ljust(width)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, least: Sequence[int] = ()) -> str:
    """A table whose columns are as wide as their widest cell (or `least`), cells in the middle."""
    lines = [head, *rows]
    floors = list(least) or [0] * len(head)
    widths = [max(floors[column], *(len(line[column]) for line in lines)) for column in range(len(head))]
    rule = f"+{'+'.join('-' * width for width in widths)}+\n"

    def drawn(cells: Sequence[str]) -> str:
        return f"|{'|'.join(centred(cell, width) for cell, width in zip(cells, widths, strict=True))}|\n"

    return f"{rule}{drawn(head)}{rule}{''.join(drawn(row) for row in rows)}{rule}"


def cluster_status(view: View) -> Said:
    """`cluster status`: the one place that shows a stopped node, as `down!`.

    With a column more where any member has a location: by Riak's source, none was recorded.
    """
    ring = view.ring
    ready = {True: "true", False: "false", None: "undefined"}[ring_ready(view)]
    rows = []
    for name in ring.names:
        there = view.report(name) is not None
        marked = ring.members[name] == "down"
        avail = "up" if there else "down" if marked else " down! "
        pending = f"{percent(ring.share_to_be(name)):>5}" if ring.changes else "--"
        mark = "(C)" if name == ring.claimant else "   "
        rows.append(
            (f" {mark} {name} ", ring.members[name], avail, f"{percent(ring.share(name)):>5}", pending)
            + ((view.locations.get(name, "undefined"),) if view.locations else ())
        )
    head = ("node", "status", "avail", "ring", "pending", *(("location",) if view.locations else ()))
    drawn = table(head, rows, least=(0, 6, 7, 5, 7, 0)[: len(head)])
    return Said(
        f"---- Cluster Status ----\nRing ready: {ready}\n\n{drawn}\n"
        "Key: (C) = Claimant; availability marked with '!' is unexpected\n"
    )


def handoff_summary(view: View) -> Said:
    """`handoff summary`.

    Its known transfers do not follow from what `transfers` says in the recordings, and stay for a while when
    all is done; the double counts what its nodes' handoff managers know (`Report.known_out`).
    """
    rows = []
    for report in view.reports:
        hinted = _cell(view, report, "hinted", _known(view, report))
        ownership = _cell(view, report, "ownership", _half_done(view, report))
        total = sum(1 for each in _running(view) if report.name in (each.source, each.target))
        rows.append((f"  {report.name}  ", f"  {total}  ", ownership, "", hinted, ""))
    head = ("Node", "Total", "Ownership", "Resize", "Hinted", "Repair")
    gone = "".join(f"(unreachable): {name}\n" for name in view.down)
    return Said(f"{SUMMARY_HEAD}{table(head, rows, least=(0, 5, 9, 6, 6, 6))}\n{gone}")


def _running(view: View) -> list[Transfer]:
    return [each for report in view.reports for each in report.transfers]


def _cell(view: View, report: Report, kind: str, known: int) -> str:
    mine = [each for each in _running(view) if report.name in (each.source, each.target)]
    active = sum(1 for each in mine if each.kind == kind)
    return f"{active} ({known})" if active or known else ""


def _known(view: View, report: Report) -> int:
    coming = sum(other.known_out.get(report.name, 0) for other in view.reports)
    return coming + sum(report.known_out.values())


def _half_done(view: View, report: Report) -> int:
    """Ownership transfers under way: the first module is over, the other is not; so it was recorded."""
    return sum(
        1
        for change in view.ring.changes
        if 0 < len(change.complete) < len(MODULES)
        and report.name in (change.owner, view.ring.owners[change.partition])
    )


def handoff_details(view: View) -> Said:
    """`handoff details`: it says so even while a transfer is running, in every recording."""
    gone = "".join(f"(unreachable): {name}\n" for name in view.down)
    return Said(f"No ongoing transfers.\n{gone}")


def handoff_config(view: View) -> Said:
    """`handoff config`: of the node that is asked alone."""
    return Said(f"{_settings(view, KNOWN_KEYS)}\n")


def show(view: View, keys: Sequence[str]) -> Said:
    """`show KEY...`: of the node that is asked alone."""
    unknown = [key for key in keys if key not in KNOWN_KEYS]
    if unknown:
        return Said(f"Invalid config keys: {' '.join(unknown)} \n", "{error,1}")
    return Said(f"{_settings(view, keys)}\n")


def _settings(view: View, keys: Sequence[str]) -> str:
    values = {
        "transfer_limit": str(view.me.transfer_limit),
        "handoff.outbound": "on" if view.me.outbound else "off",
        "handoff.inbound": "on" if view.me.inbound else "off",
        "handoff.port": str(view.handoff_port),
    }
    return table(("node", *keys), [(view.me.name, *(values[key] for key in keys))])


def partition_count(view: View) -> Said:
    """`cluster partition-count`."""
    return Said(f"Cluster-wide partition-count: {view.ring.size}\n")
