"""A file of the wrong kind is named by what it is, and by where it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cli.program import run
from orchestrator.config.elasticsearch import ClusterSpec, PlaybookSpec
from orchestrator.config.lookup import shipped
from orchestrator.config.riak import RiakClusterSpec, RiakPlaybookSpec
from orchestrator.config.spec import keys_of_file
from orchestrator.config.tuning import TuningSpec
from orchestrator.config.which_file import ALSO_OF_CLUSTERS, FileKind, kind_of_file
from orchestrator.config.yaml import read
from orchestrator.errors import ExitCode

SHIPPED = {
    FileKind.CLUSTER: tuple(
        f"configs/clusters/{name}.yml" for name in ("example", "riak-example", "hosts-example")
    ),
    FileKind.PLAYBOOK: ("playbooks/elasticsearch-rolling-restart.yml", "playbooks/riak-rolling-restart.yml"),
    FileKind.TUNING: tuple(f"configs/tuning/{store}.yml" for store in ("elasticsearch", "riak")),
}
CLUSTER = "kind: elasticsearch\nname: prod\nendpoints: ['http://127.0.0.1:1']\n"
PLAYBOOK = "kind: elasticsearch\nflush: true\n"
PROFILE = "applies_to: elasticsearch\nsettings: {vm.swappiness: 1}\n"
PLAN = '{"event": "plan", "cluster": "prod"}\n'
SNAPSHOT = '{"event": "snapshot", "schema": 1}\n'


def test_the_keys_of_a_playbook_are_those_that_no_other_file_has() -> None:
    clusters = {*ClusterSpec.model_fields, *RiakClusterSpec.model_fields}
    books = {*PlaybookSpec.model_fields, *RiakPlaybookSpec.model_fields}
    assert books == keys_of_file(FileKind.PLAYBOOK.value)
    assert clusters & books == ALSO_OF_CLUSTERS
    assert "applies_to" not in books
    assert TuningSpec.model_fields["applies_to"].is_required()


@pytest.mark.parametrize(("kind", "paths"), SHIPPED.items())
def test_the_shipped_files_are_recognised(kind: FileKind, paths: tuple[str, ...]) -> None:
    for path in paths:
        folder, _, rest = path.partition("/")
        assert kind_of_file(read(shipped(folder) / rest).content) is kind, path


def test_a_file_in_the_wrong_place_is_named(
    subtests: pytest.Subtests, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, command, says in [
        (PLAYBOOK, "plan --cluster {file}", "playbook, not a cluster file; name it with `--playbook`"),
        (PROFILE, "validate --cluster {file}", "tuning profile, not a cluster file; name it as `tune`"),
        (PLAN, "plan --cluster {file}", "saved plan, not a cluster file; `orchestrate apply` runs it"),
        (SNAPSHOT, "plan --cluster {file}", "snapshot, not a cluster file; `orchestrate rehearse"),
        (CLUSTER, "plan --cluster {cluster} --playbook {file}", "cluster file, not a playbook; name it"),
        (PROFILE, "plan --cluster {cluster} --playbook {file}", "tuning profile, not a playbook; "),
        (CLUSTER, "tune check --cluster {cluster} --profile {file}", "cluster file, not a tuning prof"),
        (PLAYBOOK, "tune check --cluster {cluster} --profile {file}", "playbook, not a tuning profile"),
        (CLUSTER, "apply {file} --yes", "cluster file, not a saved plan; name it with `--cluster`"),
        (PLAYBOOK, "apply {file} --yes", "playbook, not a saved plan; name it with `--playbook`"),
        (SNAPSHOT, "apply {file} --yes", "snapshot, not a saved plan; `orchestrate rehearse"),
        (PLAN, "rehearse --snapshot {file}", "saved plan, not a snapshot; `orchestrate apply` runs it"),
        (CLUSTER, "rehearse --snapshot {file}", "cluster file, not a snapshot; name it"),
    ]:
        with subtests.test(text=text, command=command, says=says):
            (file := tmp_path / "given.yml").write_text(text)
            (cluster := tmp_path / "prod.yml").write_text(CLUSTER)
            words = [word.format(file=file, cluster=cluster) for word in command.split()]
            assert run(words) == ExitCode.USAGE
            said = capsys.readouterr()
            assert (said.out, said.err.count("\n")) == ("", 1)
            assert said.err.startswith(f"orchestrate: {file}: this is a {says}")
