"""The keys that the files of all clusters have."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from orchestrator.config.around import (
    ANNOTATIONS,
    METRICS,
    NOTIFY,
    SILENCE,
    AnnotationsSpec,
    MetricsSpec,
    NotifyTargets,
    SilenceSpec,
)
from orchestrator.config.hosts import FileKeys, HostsSpec
from orchestrator.config.reaching import Endpoint, ExpectSpec, TlsSpec, each_once
from orchestrator.config.spec import HOSTS, NOT_EMPTY, Name, Unset
from orchestrator.model.policy import Kind
from orchestrator.next_command import next_command

ENDPOINTS: Final = (
    "HTTP addresses of some nodes, with their ports. At least two: each is down once. "
    "For Elasticsearch, one load balancer suffices."
)
HOSTS_OF_NODES: Final = "How the nodes' hosts are reached."
_PLAYBOOK: Final = (
    "Name or path of the playbook, the file that says how a restart is done. `--playbook` overrides it. One"
    " of your own has `kind` and the keys that differ from their defaults: `{show}` prints all keys. Name it:"
    " `--playbook ./ours.yml`."
)


def playbook_key(usual: str, annotated: str) -> Any:
    """The key `playbook`: its default, and what `explain` calls the playbook with all keys."""
    return Field(default=usual, description=_PLAYBOOK.format(show=next_command("explain", annotated)))


def known_kind(value: object) -> object:
    """Refuse a kind of which there is no cluster file.

    Raises:
        PydanticCustomError: it is one.
    """
    kinds = (*(kind.value for kind in Kind), HOSTS)
    if value in kinds:
        return value
    raise PydanticCustomError("enum", "no kind of cluster file", {"expected": ", ".join(kinds)})


class ClusterKeys(FileKeys):
    """The keys that the files of all clusters have."""

    MERGES: ClassVar[bool] = False  # whether its indices have segments that can be merged

    kind: Kind = Field(description="Kind of cluster.")
    name: Name = Field(description="The cluster's name.")
    endpoints: Annotated[tuple[Endpoint, ...], NOT_EMPTY, AfterValidator(each_once)] = Field(
        description=ENDPOINTS
    )
    tls: TlsSpec = Field(default_factory=TlsSpec, description="How certificates are checked.")
    playbook: Name = Field(description="Name or path of the playbook.")
    expect: ExpectSpec = Field(default_factory=ExpectSpec, description="Conditions at the start of a run.")
    hosts: HostsSpec = Field(default_factory=HostsSpec, description=HOSTS_OF_NODES)
    notify: NotifyTargets = Field(default=(), description=NOTIFY)
    silence: Unset[SilenceSpec] = Field(default=None, description=SILENCE)
    metrics: Unset[MetricsSpec] = Field(default=None, description=METRICS)
    annotations: Unset[AnnotationsSpec] = Field(default=None, description=ANNOTATIONS)

    def zones_by(self) -> str | None:
        """The attribute of nodes that names their zone; None if the cluster's own settings name it."""
        return None
