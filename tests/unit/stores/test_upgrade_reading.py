"""The whole reading that an upgrade is checked by; its parts are in `tests/data/parsers/`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import pytest

from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.upgrade import UpgradeView
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.dialect import dialect_for
from orchestrator.stores.elasticsearch.upgrade import read_upgrade
from tests.fakes.scripted_http import Answerer, ScriptedServer, reply
from tests.unit.stores.cases import known, why
from tests.unit.stores.scripted import be

DAY: Final = 1_700_000_000_000
NONE: Final[dict[str, Any]] = {"cluster_settings": [], "node_settings": [], "index_settings": {}}
STATE, NODES, DEPRECATIONS = "/_cluster/state/metadata", "/_nodes/settings", "/_migration/deprecations"
NFS, S3 = "/_snapshot/nfs/_all", "/_snapshot/s3/_all"


def snapshots(*ended: int) -> Answerer:
    names = [
        {"snapshot": "s", "state": "SUCCESS", "end_time_in_millis": end, "shards": {"failed": 0}}
        for end in ended
    ]
    return reply({"snapshots": names})


CRITICAL = {"level": "critical", "message": "Indices created before 8.0", "url": "https://ela.st/x"}
LOGS = {"settings": {"index": {"version": {"created": "7172899"}}}}
HEALTHY: Final[dict[str, Answerer]] = {
    STATE: reply({"cluster_name": "prod", "metadata": {"indices": {"logs": LOGS}}}),
    NODES: reply({"nodes": {"A": {"name": "es1", "settings": {"node.data": "true"}}}}),
    DEPRECATIONS: reply(NONE),
    "/_xpack/migration/deprecations": reply({**NONE, "index_settings": {"old": [CRITICAL]}}),
    "/_snapshot": reply({"nfs": {"type": "fs"}, "s3": {"type": "s3"}}),
    NFS: snapshots(DAY),
    S3: snapshots(DAY + 5000),
}


def refused(kind: str, reason: str, status: int) -> Answerer:
    return reply({"error": {"type": kind, "reason": reason}, "status": status}, status=status)


BROKEN: Final = refused("repository_verification_exception", "[s3] not accessible", 500)
FORBIDDEN: Final = refused("security_exception", "unauthorized for user [ops]", 403)
NO_HANDLER: Final = reply({"error": "no handler found for uri [...] and method [GET]"}, status=400)
Read = Callable[..., Reading[UpgradeView]]


@pytest.fixture
def read(server: ScriptedServer, client: Callable[..., ElasticsearchClient]) -> Read:
    """The reading of a cluster that answers some paths otherwise."""

    def read_it(answers: dict[str, Answerer], version: str = "8.19.0", product: str = "elasticsearch") -> Any:
        be(server, version=version)
        for path, answer in {**HEALTHY, **answers}.items():
            server.on(path, answer)
        return read_upgrade(client(server.url), dialect_for(product, version))

    return read_it


def test_all_of_it_is_read(read: Read) -> None:
    assert read({}) == UpgradeView(
        deprecations=(),
        snapshot_ended=DAY / 1000 + 5,
        snapshot="s3/s",
        created={"logs": "7.17.28"},
        settings={"es1": ("node.data",)},
    )


def test_deprecations_by_version(read: Read) -> None:
    for version in ("5.6.16", "6.8.23"):
        found = known(known(read({}, version)).deprecations)
        assert [one.subject for one in found] == ["index old"], "before 7.0 they are below _xpack"
    assert known(read({DEPRECATIONS: BROKEN}, "2.19.1", "opensearch")).deprecations == ()
    for answer, says in [
        (NO_HANDLER, "a part of X-Pack"),
        (FORBIDDEN, "unauthorized"),
        (BROKEN, "not accessible"),
    ]:
        view = known(read({DEPRECATIONS: answer}))
        assert says in why(view.deprecations)
        assert view.snapshot == "s3/s", "the other parts are read"


def test_a_broken_repository_hides_no_snapshot_and_is_no_absence(read: Read) -> None:
    view = known(read({S3: BROKEN}))
    assert (view.snapshot_ended, view.snapshot) == (DAY / 1000, "nfs/s")
    view = known(read({NFS: snapshots(), S3: BROKEN}))
    assert "repository s3" in why(view.snapshot_ended)
    assert view.snapshot == ""
    assert known(read({NFS: snapshots(), S3: snapshots()})).snapshot_ended is None
    assert "unauthorized" in why(known(read({"/_snapshot": FORBIDDEN})).snapshot_ended)


def test_what_the_rest_depends_on_makes_all_unknown(read: Read) -> None:
    for path, answer in product((STATE, NODES), (FORBIDDEN, reply({}), reply([]))):
        assert isinstance(read({path: answer}), Unknown)
