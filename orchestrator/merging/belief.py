"""Whether a reading is reliable enough to conclude anything from it, such as the end of a merge."""

from __future__ import annotations

from typing import Final

from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from orchestrator.engine.kinds.predicates import Question, holds
from orchestrator.engine.situation import Situation
from orchestrator.model.event import Hold
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Unknown

_IDENTITY: Final = tuple(rule for rule in PREDICATES if rule.name == "cluster_is_the_one_named")


def not_to_be_believed(situation: Situation) -> tuple[Hold, ...]:
    """Why this reading proves nothing: the cluster has no master, or it is another cluster.

    Another cluster has none of the run's indices, but that does not prove that they are gone. And without the
    lives of the nodes a resumed run could not decide which of them are still to be restarted.
    """
    if situation.view is None:
        seen = situation.seen.cluster
        why = seen.reason if isinstance(seen, Unknown) else "the cluster has no elected master"
        return (Hold(predicate="observation_is_fresh", subject="cluster state", evidence=why),)
    question = Question(
        state=situation.state,
        policy=situation.policy,
        observation=situation.seen,
        wave=Wave(number=0, nodes=()),
        first_stop=False,
    )
    return holds(_IDENTITY, question)
