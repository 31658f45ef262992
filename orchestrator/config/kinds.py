"""The kinds of cluster by the name in their files: the one place where their models are listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.config.cluster_parts import ClusterKeys
from orchestrator.config.elasticsearch import ClusterSpec, PlaybookSpec
from orchestrator.config.playbook_parts import PlaybookKeys
from orchestrator.config.riak import RiakClusterSpec, RiakPlaybookSpec
from orchestrator.config.yaml import Document
from orchestrator.model.policy import Kind


@dataclass(frozen=True, slots=True)
class FilesOfKind:
    """The models of the files of a kind."""

    cluster: type[ClusterKeys]
    playbook: type[PlaybookKeys]


FILES: Final[Mapping[str, FilesOfKind]] = {
    Kind.ELASTICSEARCH.value: FilesOfKind(ClusterSpec, PlaybookSpec),
    Kind.RIAK.value: FilesOfKind(RiakClusterSpec, RiakPlaybookSpec),
}


def files_of(document: Document) -> FilesOfKind:
    """The models for a file, by its `kind`. One of an unknown kind is checked as one for Elasticsearch."""
    return FILES.get(str(document.content.get("kind")), FILES[Kind.ELASTICSEARCH.value])
