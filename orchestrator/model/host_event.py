"""Events about failed starts, about hosts and clusters that do not answer, and about refused credentials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Refusal, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    """The service of a node ended by itself after its start. The start may be sent again.

    Attributes:
        why: the state of the service, in the words of its manager.
        said: the last lines of the manager and of the server's own log, without secrets.
    """

    node: NodeName
    why: str
    said: tuple[str, ...] = ()
    event: Literal["start_failed"] = "start_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FellSilent:
    """Hosts, or the cluster, did not answer a reading, or have not answered it yet.

    Attributes:
        nodes: those whose hosts do not answer; empty if the cluster does not.
        seconds: since the first reading was sent that has no answer.
        why: how the reading failed; empty while it still waits.
    """

    nodes: tuple[NodeName, ...]
    seconds: Seconds
    why: str = ""
    event: Literal["fell_silent"] = "fell_silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Hosts, or the cluster, answer again; or they answer slowly.

    Attributes:
        nodes: those whose hosts answer; empty if it is the cluster.
        seconds: how long the answer took.
        slowly: so long that it is said in every wait, until an answer comes in time.
    """

    nodes: tuple[NodeName, ...]
    seconds: Seconds
    slowly: bool = False
    event: Literal["answered"] = "answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRefused:
    """The cluster refuses the credentials of the run, or a request that the run needs.

    Attributes:
        refusal: the credentials, the node that refuses them, and the source of their secret.
        reading: the cluster could not be read; False if something could not be restored.
    """

    refusal: Refusal
    reading: bool
    event: Literal["access_refused"] = "access_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessGranted:
    """The cluster accepts the credentials again.

    Attributes:
        seconds: how long it refused them.
    """

    seconds: Seconds
    event: Literal["access_granted"] = "access_granted"


HostEvent: TypeAlias = StartFailed | FellSilent | Answered | AccessRefused | AccessGranted
