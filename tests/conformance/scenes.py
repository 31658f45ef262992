"""What happens to a cluster in a restart and around it, as scenes for any stage.

Each scene does something and yields its title; then the stage is read. Three nodes in three zones, all
with a vote, one shard an index, nothing is rebalanced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.elasticsearch.rules.settings import FORCED_AWARENESS, REBALANCE
from orchestrator.model.action import (
    ClearVotingExclusions,
    ExcludeFromVoting,
    ForceMerge,
    Purpose,
    RefreshIndex,
    RetryFailed,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.allocation import ALLOCATION, FLAGS
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level, SettingsView
from tests.conformance.generations import Need, generation
from tests.conformance.stages import (
    READ,
    Shot,
    Shots,
    Stage,
    Wanted,
    called_by_copies,
    loaded,
    perform,
    renamed,
    shot,
    shot_of_loaded,
    view,
)

Titles = Iterator[str]
MADE: Final = "made-meanwhile"


_MOVED_AT_ONCE: Final = "cluster.routing.allocation.cluster_concurrent_rebalance"


def put(
    stage: Stage, key: str, value: str | None, level: Level = Level.PERSISTENT, *, if_kept: str | None = None
) -> None:
    """Write one setting, as this generation has it. None removes it, or restores the value in its place.

    `if_kept`: what to write where it can neither be removed nor has a value without being set.
    """
    settings = stage.port.observe(READ).settings
    assert isinstance(settings, SettingsView), settings
    if key == ALLOCATION and settings.allocation_flags:
        wanted = _flags(settings, value, level)
    else:
        wanted = {key: settings.restored(key, None) or if_kept if value is None else value}
    changes = [SettingChange(level=level, key=name, found=None, wanted=to) for name, to in wanted.items()]
    assert settings.resets or None not in wanted.values(), f"{key} would stay"
    perform(stage, WriteSettings(changes=tuple(changes), purpose=Purpose.WITHHOLD))


def _flags(settings: SettingsView, value: str | None, level: Level) -> dict[str, str | None]:
    """The flags that do what this value of `enable` does, and those that were set and do not."""
    assert value is None or value in FLAGS, f"no flag does what {value} does"
    flags: dict[str, str | None] = {}
    for enable, flag in FLAGS.items():
        if enable == value or settings.at(level, flag) is not None:
            flags[flag] = "true" if enable == value else "false"
    return flags


def nothing_is_rebalanced(stage: Stage) -> None:
    """Which of several equal nodes gets a copy is not for the scenes to say."""
    settings = stage.port.observe(READ).settings
    assert isinstance(settings, SettingsView), settings
    if settings.resets or REBALANCE in settings.files:
        put(stage, REBALANCE, "none")
    else:  # before 2
        put(stage, _MOVED_AT_ONCE, "0")


def holder(stage: Stage, index: str, *, primary: bool) -> NodeName:
    """The node of a copy; of several replicas, the first by name, so that both stages stop the same one."""
    copies = [copy for copy in view(stage).copies if copy.shard.index == index and copy.primary is primary]
    nodes = [copy.node for copy in copies if copy.node is not None]
    assert nodes, f"no node has a copy of {index}"
    return min(nodes)


def the_master(stage: Stage) -> NodeName:
    """The elected one."""
    master = view(stage).master
    assert master is not None, "no master"
    return master


def _restart(stage: Stage, node: NodeName) -> Titles:
    put(stage, ALLOCATION, "primaries")
    yield "replicas are withheld"
    stage.stop(node)
    yield "its node is down"
    stage.start(node)
    yield "its node is back"
    put(stage, ALLOCATION, None)
    yield "allocation is as found"


def the_node_of_a_replica_is_restarted(stage: Stage) -> Titles:
    yield from _restart(stage, holder(stage, "posts", primary=False))


def the_node_of_a_primary_is_restarted(stage: Stage) -> Titles:
    yield from _restart(stage, holder(stage, "posts", primary=True))


def the_primary_of_a_closed_index_is_restarted(stage: Stage) -> Titles:
    yield from the_node_of_a_primary_is_restarted(stage)


def the_only_copy_is_away(stage: Stage) -> Titles:
    yield from _restart(stage, holder(stage, "posts", primary=True))


def all_allocation_is_off(stage: Stage) -> Titles:
    node = holder(stage, "posts", primary=True)
    put(stage, ALLOCATION, "none", Level.TRANSIENT)
    stage.create(Wanted(name=MADE))
    yield "an index is made under none"
    stage.stop(node)
    stage.start(node)
    yield "a node was restarted under none"
    put(stage, ALLOCATION, "new_primaries", Level.TRANSIENT)
    yield "new primaries only"
    put(stage, ALLOCATION, "primaries", Level.TRANSIENT)
    yield "primaries only"
    put(stage, ALLOCATION, None, Level.TRANSIENT)
    yield "as found"


def an_index_is_closed_and_opened(stage: Stage) -> Titles:
    for enable in ("primaries", "none"):
        put(stage, ALLOCATION, enable)
        stage.close("posts")
        yield f"closed under {enable}: its primary is back, its replica is not"
        stage.reopen("posts")
        yield f"opened under {enable}"
        put(stage, ALLOCATION, None)
        yield f"as found after {enable}"


def the_only_copy_comes_back_though_all_allocation_is_off(stage: Stage) -> Titles:
    node = holder(stage, "posts", primary=True)
    for enable in ("new_primaries", "none"):
        put(stage, ALLOCATION, enable)
        stage.stop(node)
        yield f"away under {enable}"
        stage.start(node)
        yield f"back under {enable}"
    put(stage, ALLOCATION, None)
    yield "as found"


def a_copy_away_misses_a_write(stage: Stage) -> Titles:
    put(stage, ALLOCATION, "primaries")
    late, left = holder(stage, "posts", primary=False), holder(stage, "posts", primary=True)
    stage.stop(late)
    stage.write("posts")
    yield "a write without the replica"
    stage.start(late)
    stage.stop(left)
    yield "the copy that missed it is the only one there"
    stage.start(left)
    yield "the copy that has it is back"
    put(stage, ALLOCATION, None)
    yield "as found"


def _away_and_back(stage: Stage, node: NodeName, meanwhile: str) -> Titles:
    stage.stop(node)
    yield meanwhile
    stage.start(node)
    yield "its node is back"


def a_copy_is_made_anew_at_once(stage: Stage) -> Titles:
    yield from _away_and_back(stage, holder(stage, "posts", primary=False), "the replica goes elsewhere")


def a_copy_waits_for_its_node(stage: Stage) -> Titles:
    yield from _away_and_back(stage, holder(stage, "posts", primary=False), "the replica waits")


def more_copies_than_nodes(stage: Stage) -> Titles:
    yield "one stays unassigned"
    yield from _away_and_back(stage, holder(stage, "posts", primary=False), "two do")


def replicas_follow_the_nodes(stage: Stage) -> Titles:
    yield "a copy on every node"
    yield from _away_and_back(stage, holder(stage, "posts", primary=False), "one node fewer")


def an_index_keeps_its_copies_away(stage: Stage) -> Titles:
    node = holder(stage, "posts", primary=False)
    stage.stop(node)
    stage.start(node)
    yield "its own setting goes before the cluster's"


def a_forced_zone_stays_away(stage: Stage) -> Titles:
    put(stage, f"{FORCED_AWARENESS}zone.values", "a,b,c,d")
    node = holder(stage, "posts", primary=False)
    stage.stop(node)
    yield "another zone takes it"
    stage.start(node)
    put(stage, f"{FORCED_AWARENESS}zone.values", None, if_kept="a,b,c")
    yield "as found"


def replicas_are_added_and_taken(stage: Stage) -> Titles:
    uuid = next(index.uuid for index in view(stage).indices if index.name == "posts")
    # Two on three nodes: which of two equal nodes gets a single one is for the balancer to say.
    perform(stage, SetReplicas(index="posts", index_uuid=uuid, found=0, wanted=2))
    yield "two replicas"
    perform(stage, SetReplicas(index="posts", index_uuid=uuid, found=2, wanted=0))
    yield "none again"
    perform(stage, RetryFailed())
    yield "nothing had failed"


def an_index_is_force_merged(stage: Stage) -> Titles:
    index = loaded(stage, "posts")
    assert index.segments > 5
    merge = ForceMerge(index=index.name, index_uuid=index.uuid, max_segments=5)
    perform(stage, merge)
    loaded(stage, "posts")
    perform(stage, RefreshIndex(index=index.name, index_uuid=index.uuid))
    yield "merged, and searches see it"
    put_right: dict[str, str | None] = {"index.refresh_interval": "5s"}
    if stage.generation.durability:
        put_right["index.translog.durability"] = "request"
    perform(
        stage,
        SetIndexSettings(index=index.name, index_uuid=index.uuid, found={}, wanted=put_right),
    )
    yield "what the load left behind is put right"
    yield from _restart(stage, holder(stage, "posts", primary=False))


def the_master_is_restarted(stage: Stage) -> Titles:
    yield from _away_and_back(stage, the_master(stage), "another one is elected")


def the_majority_is_away(stage: Stage) -> Titles:
    left = holder(stage, "posts", primary=True)
    others = [node for node in view(stage).members if node != left]
    stage.stop(*others)
    yield "no master"
    stage.start(*others)
    yield "a master"


def a_master_hands_over(stage: Stage) -> Titles:
    perform(stage, ExcludeFromVoting(node=the_master(stage)))
    yield "excluded from voting"
    perform(stage, ClearVotingExclusions())
    yield "it may vote again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A scene with the indices that it begins with."""

    play: Callable[[Stage], Titles]
    indices: tuple[Wanted, ...] = (Wanted(),)
    usual: bool = False  # played on real servers by `make test`; the others by `make record` only
    placed: bool = True  # whether it is compared which node has which copy; not where chance says so
    # a copy on disk has missed writes. Where only equal files make it be found again, it is not compared
    # which node gets it.
    behind: bool = False
    # two copies of a shard have no node, for different reasons. Where chance says which of them gets one, the
    # reason of the other is not compared.
    crowded: bool = False
    needs: tuple[Need, ...] = ()  # a generation without these does not play it

    def __str__(self) -> str:
        return self.play.__name__.replace("_", " ")


SCENES: Final = (
    Scene(play=the_node_of_a_replica_is_restarted),
    Scene(play=the_node_of_a_primary_is_restarted),
    Scene(
        play=the_primary_of_a_closed_index_is_restarted,
        indices=(Wanted(closed=True),),
        needs=(Need.CLOSED_COPIES,),
    ),
    Scene(play=the_only_copy_is_away, indices=(Wanted(replicas=0),)),
    Scene(play=all_allocation_is_off, needs=(Need.ENABLE,)),
    Scene(play=an_index_is_closed_and_opened, needs=(Need.CLOSED_COPIES,)),
    Scene(
        play=the_only_copy_comes_back_though_all_allocation_is_off,
        indices=(Wanted(replicas=0),),
        needs=(Need.ENABLE,),
    ),
    # The usual one stops a node, has a copy miss a write, and starts the node: what every restart does. What
    # real servers do in the others changes only with their version: it is recorded.
    Scene(play=a_copy_away_misses_a_write, indices=(Wanted(written=True),), usual=True, behind=True),
    Scene(play=a_copy_is_made_anew_at_once, indices=(Wanted(delay=0),)),
    Scene(play=a_copy_waits_for_its_node, needs=(Need.DELAY,)),
    Scene(play=more_copies_than_nodes, indices=(Wanted(replicas=3),), crowded=True),
    Scene(play=replicas_follow_the_nodes, indices=(Wanted(replicas=2, auto_expand="0-all"),)),
    Scene(play=an_index_keeps_its_copies_away, indices=(Wanted(enable="none"),)),
    Scene(play=a_forced_zone_stays_away, indices=(Wanted(delay=0),)),
    Scene(play=replicas_are_added_and_taken, indices=(Wanted(replicas=0),)),
    Scene(play=an_index_is_force_merged, indices=(Wanted(loaded=True),)),
    Scene(play=the_master_is_restarted, indices=(Wanted(at_master=True),)),
    # Elected is one that stayed, with its routing table, or one that came back and makes it anew: so any of
    # the copies may be the primary then.
    Scene(play=the_majority_is_away, indices=(Wanted(replicas=2),), placed=False),
    Scene(play=a_master_hands_over, indices=(Wanted(at_master=True),), needs=(Need.VOTING_EXCLUSIONS,)),
)


def played_on(version: str) -> tuple[Scene, ...]:
    """The scenes that apply to this version."""
    has = generation(version).has
    return tuple(scene for scene in SCENES if all(has(need) for need in scene.needs))


def play(scene: Scene, stage: Stage) -> Shots:
    """The readings of a scene on a stage that has its indices, and where nothing is rebalanced."""
    called = called_by_copies(stage.read(), scene.indices)
    names = {index.name for index in scene.indices}
    reasons = not (stage.generation.shuffles and scene.crowded)
    where = scene.placed and (stage.generation.by_operations or not scene.behind)
    placed = names if where else set()

    def taken() -> Shot:
        read = renamed(stage.read(), called)
        told = shot(read, placed, made_meanwhile=(MADE, *(names - placed)), reasons=reasons)
        return {**told, **shot_of_loaded(stage, scene.indices, called)}

    return [("at first", taken()), *((title, taken()) for title in scene.play(stage))]
