"""The files that come with the package, and the schemas that are written from the models."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs.configuration import ANNOTATED, SchemaOf, annotated, json_schema, keys
from orchestrator.cli.work.explain import all_entries
from orchestrator.config.cluster import ClusterFile, HostsFileSpec, check_cluster, load_cluster, load_hosts
from orchestrator.config.disabling import PredicateNames
from orchestrator.config.elasticsearch import PlaybookSpec
from orchestrator.config.hosts import NamedHostsSpec
from orchestrator.config.lookup import KindOfFile, find, shipped, standard_places
from orchestrator.config.playbook import Playbook, check_playbook, load_playbook
from orchestrator.config.policy import Overrides, build_policy
from orchestrator.config.reaching import TlsSpec
from orchestrator.config.riak import RiakClusterSpec, RiakHostsSpec, RiakPlaybookSpec
from orchestrator.config.spec import Spec
from orchestrator.config.yaml import parse, read
from orchestrator.model.policy import Policy

ROOT = Path(__file__).parents[3]
HOME = Path("/home/op")
CLUSTERS = shipped("configs") / "clusters"
PLAYBOOKS = {"elasticsearch-rolling-restart": PlaybookSpec, "riak-rolling-restart": RiakPlaybookSpec}


def _path(playbook: str) -> Path:
    return find(KindOfFile.PLAYBOOK, playbook, standard_places({}, home=HOME))


def _policy(cluster: ClusterFile, book: Playbook) -> Policy:
    assert cluster.spec.playbook == book.name
    assert cluster.warnings == ()
    names = PredicateNames(known=(), always_on=())
    return build_policy(cluster, book, Overrides(), predicates=names, nodes=3, now=0.0)


@pytest.mark.parametrize(
    ("example", "kind", "own"),
    [
        ("example.yml", "elasticsearch", {"zone_attribute": "zone", "expect_nodes": 3}),
        ("riak-example.yml", "riak", {"expect_nodes": 5}),
    ],
)
def test_an_example_and_its_playbook_make_the_default_policy(
    example: str, kind: str, own: dict[str, Any]
) -> None:
    cluster, book = (
        load_cluster(CLUSTERS / example, home=HOME),
        load_playbook(_path(f"{kind}-rolling-restart")),
    )
    head = f"kind: {kind}\n"
    bare = parse(f"{head}name: {cluster.spec.name}\nendpoints: ['http://a:1']\n", "f.yml")
    usual = _policy(
        check_cluster(bare, path=Path("f.yml"), home=HOME),
        check_playbook(parse(head, "f.yml"), path=Path("f.yml"), name=book.name),
    )
    assert _policy(cluster, book) == replace(usual, **own)


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_the_usual_playbook_says_what_holds_without_it(playbook: str) -> None:
    kind = f"kind: {playbook.partition('-')[0]}\n"
    cluster = parse(f"{kind}name: x\nendpoints: ['http://a:1']\n", "f.yml")
    assert check_cluster(cluster, path=Path("f.yml"), home=HOME).spec.playbook == playbook
    alone = check_playbook(parse(kind, "f.yml"), path=Path("f.yml"), name="f")
    assert load_playbook(_path(playbook)).spec == alone.spec


def test_an_annotated_playbook_has_every_key_with_its_default(subtests: pytest.Subtests) -> None:
    for which, file in ((SchemaOf.PLAYBOOK, "playbook"), (SchemaOf.RIAK_PLAYBOOK, "playbook of Riak")):
        with subtests.test(which=which):
            text = annotated(which)
            kind = json_schema(which)["properties"]["kind"]["const"]
            written, bare = (
                check_playbook(parse(one, "f.yml"), path=Path("f.yml"), name="f")
                for one in (text, f"kind: {kind}\n")
            )
            assert written.spec == bare.spec, "what is not commented out is the default"
            of_file = [key for key in keys() if key.file == file]
            named = set(re.findall(r"^[ #]*(\w+):(?: |$)", text, re.MULTILINE))
            assert {key.path.rpartition(".")[2] for key in of_file} - named == set()
            said = " ".join(re.sub(r"^[ #]+", "", text, flags=re.MULTILINE).split())
            assert [key.path for key in of_file if key.meaning not in said] == []
            assert max(map(len, text.splitlines())) <= 110
    assert len(ANNOTATED) == 2


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_what_a_shipped_playbook_has_in_comments_can_be_used(playbook: str) -> None:
    text = _path(playbook).read_text()
    usable, count = re.subn(r"^# (\w+: )", r"\1", text, flags=re.MULTILINE)
    spec = check_playbook(parse(usable, "f.yml"), path=Path("f.yml"), name="f").spec
    assert count > 1
    assert spec != load_playbook(_path(playbook)).spec


def test_every_example_of_an_upgrade_can_be_used() -> None:
    page = (ROOT / "docs/how-to/upgrade.md").read_text()
    first, *examples = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert check_playbook(parse(first, "f.yml"), path=Path("f.yml"), name="f").document.content["upgrade"]
    assert len(examples) == 3
    for example in examples:
        spec = check_playbook(parse(example, "f.yml"), path=Path("f.yml"), name="f").spec
        assert isinstance(spec, PlaybookSpec)
        assert spec.upgrade is not None
        assert spec.upgrade.installed
        assert "{version}" in spec.upgrade.installed
        assert spec.upgrade.plugins == ("analysis-icu",)


def test_the_example_of_riak_has_every_key() -> None:
    document = read(CLUSTERS / "riak-example.yml")
    text = (CLUSTERS / "riak-example.yml").read_text()
    assert set(document.content) == set(RiakClusterSpec.model_fields) - {"tls"}
    assert set(document.content["hosts"]) == set(RiakHostsSpec.model_fields) - {"service"}
    for key in ("tls", "service", "admin", *TlsSpec.model_fields):
        assert re.search(rf"^ *# +{key}:", text, re.MULTILINE), f"{key} stands there as a comment"


def test_the_example_of_hosts_has_every_key() -> None:
    file = load_hosts(CLUSTERS / "hosts-example.yml", home=HOME)
    assert file.warnings == file.overrides_without_node(file.named_nodes()) == ()
    assert set(file.document.content) == set(HostsFileSpec.model_fields)
    assert set(file.document.content["hosts"]) == set(NamedHostsSpec.model_fields)


def test_a_schema_is_json_and_refuses_unknown_keys(subtests: pytest.Subtests) -> None:
    for which in list(SchemaOf):
        with subtests.test(which=which):
            schema = json.loads(json.dumps(json_schema(which)))
            assert schema["additionalProperties"] is False
            assert ("applies_to" if which is SchemaOf.TUNING else "kind") in schema["required"]
            assert {shape.get("additionalProperties", False) for shape in schema["$defs"].values()} == {False}


def test_every_key_of_every_file_is_described() -> None:
    def models(base: type[Spec]) -> list[type[Spec]]:
        return [base, *(found for child in base.__subclasses__() for found in models(child))]

    for model in models(Spec):
        if not model.__name__.startswith("_"):
            bare = [key for key, info in model.model_fields.items() if not info.description]
            assert bare == [], model


def test_the_wheel_contains_them(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    done = subprocess.run(  # noqa: S603  (our own build)
        command, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    for example in ("example.yml", "riak-example.yml", "hosts-example.yml"):
        assert f"orchestrator/_shipped/configs/clusters/{example}" in names
    for playbook in PLAYBOOKS:
        assert f"orchestrator/_shipped/playbooks/{playbook}.yml" in names
    pages = {entry.page for entry in all_entries() if entry.page}
    assert {f"orchestrator/_shipped/{page}" for page in pages} - names == set()
    assert "orchestrator/cli/explained.jsonl" in names
    code = "from orchestrator.config.lookup import shipped; print(shipped('playbooks'), shipped('configs'))"
    found = subprocess.run(  # noqa: S603  (our own code, installed)
        [sys.executable, "-P", "-c", code],
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60,
        env={"PYTHONPATH": str(tmp_path / "site"), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    folder = tmp_path / "site" / "orchestrator" / "_shipped"
    assert found.stdout.split() == [str(folder / "playbooks"), str(folder / "configs")]
