"""What was recorded of commands that a rolling restart does not use: vnodes, entropy trees, plans, help."""

from __future__ import annotations

from .report import View
from .ring import N_VAL, Ring
from .texts import RULE, Said, member_status, title

USAGE = """\
Usage: riak [COMMAND] [ARGS]

Commands:

  foreground              Start release with output to stdout
  remote_console          Connect remote shell to running node
  rpc [Mod [Fun [Args]]]] Run apply(Mod, Fun, Args) on running node
  eval [Exprs]            Run expressions on running node
  stop                    Stop the running node
  restart                 Restart the applications but not the VM
  reboot                  Reboot the entire VM
  pid                     Print the PID of the OS process
  ping                    Print pong if the node is alive
  console                 Start the release with an interactive shell
  console_clean           Start an interactive shell without the release's applications
  console_boot [File]     Start an interactive shell for boot script [File]
  daemon                  Start release in the background with run_erl (named pipes)
  daemon_boot [File]      Start boot script [File] in the background with run_erl (named pipes)
  daemon_attach           Connect to node started as daemon with to_erl (named pipes)
  upgrade [Version]       Upgrade the running release to a new version
  downgrade [Version]     Downgrade the running release to a new version
  install [Version]       Install a release
  uninstall [Version]     Uninstall a release
  unpack [Version]        Unpack a release tarball
  versions                Print versions of the release available
  escript                 Run an escript in the same environment as the release
  status                  Verify node is running and then run status hook scripts
  admin|repl|debug|chkconfig
"""
DESCRIBED = """\
transfer_limit:
  Number of concurrent node-to-node transfers allowed.
  It is generally safe to raise this number to increase concurrency.  A
  common value to use would be 8.  However, it is necessary to monitor for
  handoff timeouts.  If handoff timeouts occur, reduce the
  handoff_batch_threshold_count.  If timeouts continue to occur, even with a
  low value for the handoff_batch_threshold_count (e.g. 200), then raise the
  handoff_timeout.  Further, if using the leveled backend in Riak KV
  investigate raising the the backend_pause.

"""
ENSEMBLES = f"""\
{title("Consensus System")}
Enabled:     false
Active:      false
Ring Ready:  true
Validation:  strong (trusted majority required)
Metadata:    best-effort replication (asynchronous)

Note: The consensus subsystem is not enabled.

{title("Ensembles")}
There are no active ensembles.
"""


def plan(view: View) -> Said:
    """`cluster plan`."""
    staged = view.ring.staged
    if not staged:
        return Said("There are no staged changes\n")
    after = view.ring.committed()
    joins = "".join(f"join           '{name}'\n" for name in staged)
    hashes = "#" * 79
    return Said(
        f"{title('Staged Changes')}\nAction         Details(s)\n{RULE}\n{joins}{RULE}\n\n\n"
        f"NOTE: Applying these changes will result in 1 cluster transition\n\n{hashes}\n"
        f"{'After cluster transition 1/1':>53}\n{hashes}\n\n"
        f"{_membership_to_be(view, after)}\n{_crowded(after)}{_moves(after)}\n"
    )


def _membership_to_be(view: View, after: Ring) -> str:
    """The members as the plan would have them; all as the asked node sees them, none of them by itself."""
    me = type(view.me)(name=view.me.name, ring=after, vnodes=view.me.vnodes)
    return member_status(View(me=me)).text


def _crowded(after: Ring) -> str:
    """Whether some preference list would have a node twice, when the changes are done."""
    owners = list(after.owners)
    for change in after.changes:
        owners[change.partition] = change.owner
    for first in range(after.size):
        if len({owners[(first + step) % after.size] for step in range(N_VAL)}) < N_VAL:
            return "WARNING: Not all replicas will be on distinct nodes\n\n"
    return ""


def _moves(after: Ring) -> str:
    moves: dict[tuple[str, str], int] = {}
    for change in after.changes:
        way = (after.owners[change.partition], change.owner)
        moves[way] = moves.get(way, 0) + 1
    lines = "".join(
        f"  {moves[way]} transfers from '{way[0]}' to '{way[1]}'\n" for way in sorted(moves, reverse=True)
    )
    return f"Transfers resulting from cluster changes: {len(after.changes)}\n{lines}"


def vnode_status(view: View) -> Said:
    """`vnode-status`. The vnode ids are random bytes on a real node; the double's are readable."""
    head = "Vnode status information\n-------------------------------------------\n\n"
    return Said(head + "".join(_vnode(view, partition) for partition in sorted(view.me.vnodes)))


def _vnode(view: View, partition: int) -> str:
    return (
        f"VNode: {view.ring.index(partition)}\n"
        "Backend: riak_kv_bitcask_backend\n"
        "Status: \n[{key_count,0},{status,[]}]\n"
        f'Status: \n{{vnodeid,<<"double{partition:02}">>}}\n'
        "Status: \n{counter,0}\n"
        "Status: \n{counter_lease,10000}\n"
        "Status: \n{counter_lease_size,10000}\n"
        "Status: \n{counter_leasing,false}\n\n"
    )


def aae_status(view: View) -> Said:
    """`aae-status`: no tree has been exchanged yet, the only state that was recorded."""
    indices = [str(view.ring.index(partition)) for partition in sorted(view.me.vnodes)]
    exchanges = "".join(f"{index:<49}  {'--':<14}{'--':<12}\n" for index in indices)
    trees = "".join(f"{index:<49}  {view.age:.1f} s\n" for index in indices)
    return Said(
        f"{title('Exchanges')}\n{'Index':<49}  {'Last (ago)':<14}{'All (ago)':<12}\n{RULE}\n{exchanges}\n"
        f"{title('Entropy Trees')}\n{'Index':<49}  Built (ago)\n{RULE}\n{trees}\n"
        f"{title('Keys Repaired')}\n{'Index':<49}    {'Last':<10}{'Mean':<10}{'Max':<6}\n{RULE}\n"
    )
