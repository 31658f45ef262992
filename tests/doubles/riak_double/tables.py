"""What commands print that draw tables, byte for byte as on 3.2.1: `cluster status`, `show`."""

from __future__ import annotations

from collections.abc import Sequence

from .report import View
from .texts import Said, percent, ring_ready

KEY = "transfer_limit"
"""The setting that the program asks; others exist on a real node, and the double calls them invalid."""


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


def show(view: View, keys: Sequence[str]) -> Said:
    """`show KEY...`: of the node that is asked alone."""
    unknown = [key for key in keys if key != KEY]
    if unknown:
        return Said(f"Invalid config keys: {' '.join(unknown)} \n", "{error,1}")
    drawn = table(("node", *keys), [(view.me.name, *(str(view.me.transfer_limit) for _ in keys))])
    return Said(f"{drawn}\n")
