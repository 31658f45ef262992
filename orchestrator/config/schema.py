"""JSON schemas of the files, so that an editor can complete and check them while they are written."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from orchestrator.config.cluster import ClusterSpec, RiakClusterSpec
from orchestrator.config.playbook import PlaybookSpec
from orchestrator.config.riak_playbook import RiakPlaybookSpec
from orchestrator.config.spec import Spec
from orchestrator.config.tuning import TuningSpec

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class SchemaOf(Enum):
    """Files that have a schema."""

    CLUSTER = "cluster"
    PLAYBOOK = "playbook"
    RIAK_CLUSTER = "riak-cluster"
    RIAK_PLAYBOOK = "riak-playbook"
    TUNING = "tuning"


def model_of(which: SchemaOf) -> type[Spec]:
    """The model that a file is checked against."""
    match which:
        case SchemaOf.CLUSTER:
            return ClusterSpec
        case SchemaOf.PLAYBOOK:
            return PlaybookSpec
        case SchemaOf.RIAK_CLUSTER:
            return RiakClusterSpec
        case SchemaOf.RIAK_PLAYBOOK:
            return RiakPlaybookSpec
        case SchemaOf.TUNING:
            return TuningSpec


def json_schema(which: SchemaOf) -> dict[str, Any]:
    """The schema of a file, as an editor takes it (`# yaml-language-server: $schema=…`)."""
    return {
        "$schema": DIALECT,
        "$id": f"orchestrate-{which.value}.schema.json",
        **model_of(which).model_json_schema(),
    }
