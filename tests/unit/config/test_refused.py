"""Bad files: each is refused by file, line and key. Files and messages are in `tests/data/config/refused`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.config import yaml
from orchestrator.config.cluster import check_cluster, check_hosts
from orchestrator.config.elasticsearch import PlaybookSpec
from orchestrator.config.playbook import check_playbook
from orchestrator.config.riak import RiakPlaybookSpec
from orchestrator.config.tuning import check_profile
from orchestrator.config.yaml import MAX_BYTES, Document, parse, read
from orchestrator.errors import ConfigError, ExitCode, NotInThisVersion
from tests.fakes.cases import cases

ELASTICSEARCH = "kind: elasticsearch\nname: prod\nendpoints: ['http://localhost:9200']\n"
BOOK = "kind: elasticsearch\n"
TUNABLES = ("numad", "transparent_hugepage.enabled", "io_scheduler", "vm.swappiness")
RULES = dict.fromkeys(TUNABLES, lambda setting: "must not be that" if "bad" in str(setting.wanted) else None)


def cluster(document: Document) -> object:
    return check_cluster(document, path=Path("prod.yml"), home=Path("/home/op"))


def hosts(document: Document) -> object:
    return check_hosts(document, path=Path("cass.yml"), home=Path("/home/op"))


def playbook(document: Document) -> object:
    return check_playbook(document, path=Path("book.yml"), name="book")


def profile(document: Document) -> object:
    return check_profile(document, rules=RULES, name="f")


CHECKS: dict[str, tuple[Callable[[Document], object], str]] = {
    "cluster": (cluster, ELASTICSEARCH),
    "around": (cluster, ELASTICSEARCH),
    "riak-cluster": (cluster, "kind: riak\nname: ring\nendpoints: ['http://riak1:8098']\n"),
    "hosts": (hosts, "kind: hosts\nname: cass\nhosts:\n  names: {cass1: {}, cass2: {address: 10.1.0.2}}\n"),
    "playbook": (playbook, ""),
    "profile": (profile, "applies_to: elasticsearch\nsettings:\n"),
}
"""By the name of the file with the cases: the check, and what `HEAD` stands for in them."""


def refusal(check: Callable[[Document], object], text: str, file: str = "f.yml") -> str:
    with pytest.raises((ConfigError, NotInThisVersion)) as caught:
        check(parse(text, file))
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


@pytest.mark.parametrize("name", CHECKS)
def test_a_bad_file_is_refused_by_file_line_and_key(subtests: pytest.Subtests, name: str) -> None:
    check, head = CHECKS[name]
    for text, (message,) in cases(f"config/refused/{name}.txt"):
        with subtests.test(text=text):
            assert refusal(check, text.replace("HEAD\n", head, 1), "FILE") == message


def test_a_control_character_is_refused_by_its_line() -> None:
    said = refusal(cluster, "a: 1\nb: \x07\n")
    assert said == "f.yml:2: holds a character that YAML does not allow"


def test_keys_of_a_riak_playbook_that_are_elasticsearchs(subtests: pytest.Subtests) -> None:
    other = set(PlaybookSpec.model_fields) - set(RiakPlaybookSpec.model_fields)
    assert other == set(RiakPlaybookSpec.ELSEWHERE)
    for key, why in RiakPlaybookSpec.ELSEWHERE.items():
        with subtests.test(key=key):
            assert why.startswith("not for `kind: riak`: ")
            assert refusal(playbook, f"kind: riak\n{key}: 1\n") == f"f.yml:2: {key}: {why}"


def test_a_command_that_a_shell_reads_to_its_end_is_taken(subtests: pytest.Subtests) -> None:
    for line in [
        "sh -c 'depool \"$1\"' sh {node}",
        "echo it\\'s {node}",
        "depool {node}  # don't ask",
        "echo ${node} {node} | awk '{print}' | xargs -I{} echo {}",
        "python3 -c 'code, mode = 1, 2; print(f\"{code} {mode}\")'",
        "depool 'a # b' {node}",
        "for name in a b; do depool ${name} {node}; done; curl -w '%{host}' x; docker ps --format '{{name}}'",
        "cat >/tmp/x <<'END'\nit's out\nEND",
    ]:
        with subtests.test(line=line):
            text = BOOK + f"hooks: {{before_stop: [{{run: {json.dumps(line)}}}]}}\n"
            spec = check_playbook(parse(text, "f.yml"), path=Path("f.yml"), name="f").spec
            assert [hook.run for hook in spec.hooks.before_stop] == [line]


def test_all_faults_of_a_file_are_named_in_the_order_of_lines() -> None:
    said = refusal(cluster, ELASTICSEARCH + "expect: {nodes: 0}\ngates: []\nhosts:\n  port: x\n").splitlines()
    assert said[0] == "f.yml:4: expect.nodes: must be at least 1"
    assert said[1].startswith("f.yml:5: gates: is a key of the playbook")
    assert said[2:] == ["f.yml:7: hosts.port: must be a whole number"]
    later = refusal(playbook, BOOK + "windows: []\nflush: 1\n")
    assert later == "f.yml:2: windows: not in this version\nf.yml:3: flush: must be true or false"
    tunables = refusal(profile, "applies_to: x\nsettings:\n  nope: 1\n  numad: bad\n").splitlines()
    assert tunables[0].startswith("f.yml:3: settings: unknown tunable")
    assert tunables[1] == "f.yml:4: settings.numad: must not be that"


def test_a_wrong_file_shows_nothing_that_it_holds() -> None:
    """It may be one of secrets. Those that are unknown are counted, and five faults are shown at most."""
    said = refusal(cluster, "".join(f"TOKEN_{number}: hunter{number}\n" for number in range(9))).splitlines()
    assert not any(word in line for line in said for word in ("TOKEN", "hunter"))
    assert len(said) <= 6
    assert said[0].startswith("f.yml:1: unknown key; known: kind, name, endpoints, ")
    assert said[0].endswith("(9 such keys)")


def test_five_faults_are_shown_and_the_others_counted() -> None:
    names = ("stop", "start", "rejoin", "recover", "hold", "gate")
    said = refusal(playbook, f"{BOOK}deadlines:\n" + "".join(f"  {name}: never\n" for name in names))
    places = [line.split(": ")[0] for line in said.splitlines()]
    assert places == [*(f"f.yml:{line}" for line in range(3, 8)), "f.yml"]
    assert said.endswith("\nf.yml: and 1 more")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ": cannot be read: No such file or directory"),
        (b"kind: elasticsearch\nname: caf\xe9\n", ":2: is not UTF-8 text"),
        (b"#" * (MAX_BYTES + 1), ": is larger than 256 KiB: is this the right file?"),
    ],
    ids=["missing", "latin-1", "huge"],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "f.yml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^{re.escape(f'{path}{message}')}$"):
        read(path)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read(tmp_path)


def test_an_alias_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert yaml.MAX_VALUES == 50_000
    monkeypatch.setattr(yaml, "MAX_VALUES", 500)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="holds more than 500 values"):
        parse("\n".join(lines), "bomb.yml")
