"""What commands print that draw tables, byte for byte as on 3.2.1: `cluster status`, `show`."""

from __future__ import annotations

from collections.abc import Sequence

from .report import View
from .texts import Said, claimant_is_up, percent


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
    ready = "true" if claimant_is_up(view) else "undefined"
    rows = []
    for name in ring.members:
        avail = "up" if view.report(name) is not None else " down! "
        mark = "(C)" if name == ring.claimant else "   "
        rows.append(
            (f" {mark} {name} ", "valid", avail, f"{percent(ring.share(name)):>5}", "--")
            + ((view.locations.get(name, "undefined"),) if view.locations else ())
        )
    head = ("node", "status", "avail", "ring", "pending", *(("location",) if view.locations else ()))
    drawn = table(head, rows, least=(0, 6, 7, 5, 7, 0)[: len(head)])
    return Said(
        f"---- Cluster Status ----\nRing ready: {ready}\n\n{drawn}\n"
        "Key: (C) = Claimant; availability marked with '!' is unexpected\n"
    )


def show_limit(view: View) -> Said:
    """`show transfer_limit`: of the node that is asked alone."""
    drawn = table(("node", "transfer_limit"), [(view.me.name, str(view.me.transfer_limit))])
    return Said(f"{drawn}\n")
