"""What commands print that nobody recorded, and that the program asks all the same.

The layout is that of the product's published source (riak_core, riak_kv and clique): which lines there are,
what stands in them and what is returned. The values are the double's own.
"""

from __future__ import annotations

from .report import View
from .ring import MODULES
from .tables import table
from .texts import Said

FIRST_TICK_SECONDS = 4.0
"""From the first answer to the first tick of the vnode manager, by which it lists what it has not started.
riak_core has ten from its own start; here some are then still to be started, so that this is seen too."""

HEAD = ("type", "index", "id")
NOTHING = "--"
DEFAULT_PROPERTIES = {"allow_mult": "false", "n_val": "3", "young_vclock": "20"}
"""Some of those of the default type, in order."""


def partitions(view: View, name: str) -> Said:
    """`cluster partitions`, of the asked node or with `-n NODE`.

    Three groups, each in the order of the ring, and a line of dashes where one is empty: `primary` runs and
    is its own, `secondary` runs and is not, `stopped` is its own and does not run. All that a node owns is
    `stopped` when it cannot be reached.
    """
    report = view.report(name)
    active = report.vnodes if report else frozenset()
    owned = view.ring.owned(name)
    rows: list[tuple[str, str, str]] = []
    for kind, found in (
        ("primary", active & owned),
        ("secondary", active - owned),
        ("stopped", owned - active),
    ):
        some = [(kind, str(view.ring.index(number)), str(number)) for number in sorted(found)]
        rows.extend(some or [(kind, NOTHING, NOTHING)])
    return Said(f"Partitions owned by '{name}':\n{table(HEAD, rows)}\n")


def bucket_type_list() -> Said:
    """`bucket-type list`: there is the default type alone."""
    return Said("default (active)\n")


def bucket_type_status() -> Said:
    """`bucket-type status default`."""
    values = "".join(f"{key}: {value}\n" for key, value in DEFAULT_PROPERTIES.items())
    return Said(f"default is active\n\n{values}")


def vnode_manager(view: View) -> Said:
    """`#state{}` of `riak_core_vnode_manager`: two of its lists are empty before its first tick."""
    step = 2**160 // view.ring.size
    unstarted = [
        f"{{{number * step},{module}}}" for number in sorted(view.me.unstarted) for module in MODULES
    ]
    listed = view.age >= FIRST_TICK_SECONDS
    parts = (
        "state",
        "#Ref<0.301673411.334220492.135310>",
        "{dict,0,16,16,8,80,48,{[],[],[]},{{[],[],[]}}}",
        "{dict,0,16,16,8,80,48,{[],[],[]},{{[],[],[]}}}",
        f"[{','.join(MODULES) if listed else ''}]",
        f"[{','.join(unstarted) if listed else ''}]",
        "16",
        f"{{'{view.me.name}',{{63,<<\"a,]}}\">>}}}}",
        "[]",
    )
    return Said(f"{{{','.join(parts)}}}\n", None)
