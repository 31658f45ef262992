# ruff: noqa: E501  (the tables are read by their rows: a file, its place and its message in one line each)
"""Bad files as a table: text, and the exact message with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.config.cluster import check_cluster
from orchestrator.config.playbook import check_playbook
from orchestrator.config.yaml import MAX_BYTES, parse, read
from orchestrator.errors import ConfigError, ExitCode, NotInThisVersion, OrchestratorError

HEAD = "kind: elasticsearch\nname: prod\nendpoints: ['http://localhost:9200']\n"
ONLY = "there is `{node}` alone (`{name}` and `{host}` are for `riak.command` and `riak.admin`)"
NONE = "there is none, since it is not about one node"
LITERAL = "a secret is never written here; write a reference to it: env:NAME, file:/path, command:… or keyring:service/user"

CLUSTER_FILES = [
    ("", None, None, "is empty: a mapping of keys is needed"),
    ("# nothing\n", None, None, "is empty: a mapping of keys is needed"),
    ("- a\n", 1, None, "must be a mapping of keys (`key: value`)"),
    ("kind: elasticsearch\nkind: elasticsearch\n", 2, None, "this key is on line 1 too; remove one of them"),
    ("a: 1\n---\nb: 2\n", 2, None, "is not valid YAML: a file holds one document; remove what follows the `---`"),
    ("a: b: c\n", 1, None, "is not valid YAML: a `: ` is where no key can be; put the text in quotes, or check the indentation"),
    ("a:\n  'x\nb: 1\n", 2, None, "is not valid YAML: a quote is opened here and not closed"),
    ("a: @x\n", 1, None, "is not valid YAML: a value that begins with `@` must be in quotes"),
    ("a: 1\nb: [\n", 3, None, "is not valid YAML: expected the node content, but found '<stream end>'"),
    ("a: 1\nb: \x07\n", 2, None, "holds a character that YAML does not allow"),
    ("a: !python/object:os.system x\n", 1, None, "tags are not taken; a value that begins with `!` must be in quotes"),
    ("a: {<<: {b: c}}\n", 1, None, "merge keys (`<<`) are not YAML 1.2; write the keys out"),
    ("{a: {? {b: c} : d}}\n", 1, None, "a key must be plain text; text that begins with a brace needs quotes"),
    ("kind: elasticsearch\nname: x\n", None, "endpoints", "is missing"),
    ("kind: mongo\nname: x\nendpoints: ['http://a:1']\n", 1, "kind", "must be one of elasticsearch, riak"),
    ("kind: elasticsearch\nname: x\nendpoints: []\n", 3, "endpoints", "must not be empty"),
    ("kind: elasticsearch\nname: x\nendpoints: http://a:1\n", 3, "endpoints", "must be a list, not a text"),
    ("kind: elasticsearch\nname: x\nendpoints:\n- http://a:1\n- ftp://a:1\n", 5, "endpoints[1]", "must begin with http:// or https://"),
    ("kind: elasticsearch\nname: x\nendpoints: ['https://a']\n", 3, "endpoints[0]", "must name the port, such as https://es1:9200: neither 443 nor 9200 is assumed"),
    ("kind: elasticsearch\nname: x\nendpoints: ['http://[::1']\n", 3, "endpoints[0]", "must be a URL such as https://es1:9200"),
    ("kind: elasticsearch\nname: x\nendpoints: ['http://a:99999']\n", 3, "endpoints[0]", "must be a URL such as https://es1:9200"),
    ("kind: elasticsearch\nname: x\nendpoints: ['http://:9200']\n", 3, "endpoints[0]", "must be a URL such as https://es1:9200"),
    ("kind: elasticsearch\nname: x\nendpoints: ['http://a:1?q=1']\n", 3, "endpoints[0]", "must end with the port or a path; a query or a fragment has no meaning here"),
    ("kind: elasticsearch\nname: x\nendpoints: ['http://u:s3cret@a:1']\n", 3, "endpoints[0]", "must not hold a user or a password; `auth` is for them, by reference"),
    (HEAD + "zone_attribut: zone\n", 4, None, "unknown key `zone_attribut`; did you mean `zone_attribute`?"),
    (HEAD + "zone_attribute: 7\n", 4, "zone_attribute", "must be text, in quotes"),
    (HEAD + "playbook:\n", 4, "playbook", "has no value"),
    (HEAD + "auth:\n", 4, "auth", "has no value"),
    (HEAD + "auth: {}\n", 4, "auth", "needs either `api_key` or `basic`"),
    (HEAD + "auth: {api_key: env:A, basic: {username: u, password: env:B}}\n", 4, "auth", "needs either `api_key` or `basic`"),
    (HEAD + "auth:\n  api_kee: s3cret\n", 5, "auth", "unknown key `api_kee`; did you mean `api_key`?"),
    (HEAD + "auth:\n  api_key: s3cret\n", 5, "auth.api_key", LITERAL),
    (HEAD + "auth:\n  basic:\n    username: u\n    password: s3cret\n", 7, "auth.basic.password", LITERAL),
    (HEAD + "auth:\n  basic:\n    username: u\n    password: 12345\n", 7, "auth.basic.password", LITERAL),
    (HEAD + "auth:\n  basic:\n    username: u\n", 5, "auth.basic.password", "is missing"),
    (HEAD + "auth:\n  api_key: 'env:'\n", 5, "auth.api_key", "`env:` is not followed by what it needs; the forms are env:NAME, file:/path, command:… or keyring:service/user"),
    (HEAD + "auth:\n  api_key: keyring:es\n", 5, "auth.api_key", "`keyring:` is not followed by what it needs; the forms are env:NAME, file:/path, command:… or keyring:service/user"),
    (HEAD + "auth:\n  api_key: \"command:pass 'x\"\n", 5, "auth.api_key", "`command:` is not followed by what it needs; the forms are env:NAME, file:/path, command:… or keyring:service/user"),
    (HEAD + "tls: {verify: no}\n", 4, "tls.verify", "must be true or false (YAML 1.2 takes yes, no, on and off for text)"),
    (HEAD + "tls: {client_key: k.pem}\n", 4, "tls", "`client_key` needs `client_cert`"),
    (HEAD + "tls: {fingerprint: abc}\n", 4, "tls.fingerprint", "must be 64 hexadecimal digits (SHA-256)"),
    (HEAD + "expect: {nodes: 0}\n", 4, "expect.nodes", "must be at least 1"),
    (HEAD + "expect: {nodes: '3'}\n", 4, "expect.nodes", "must be a whole number"),
    (HEAD + "hosts:\n  sudo: maybe\n", 5, "hosts.sudo", "must be one of auto, true, false"),
    (HEAD + "hosts:\n  conect: ssh\n", 5, "hosts", "unknown key `conect`; did you mean `connect`?"),
    (HEAD + "hosts:\n  connect: telnet\n", 5, "hosts.connect", "must be one of ssh, openssh, local"),
    (HEAD + "hosts:\n  port: 70000\n", 5, "hosts.port", "must be at most 65535"),
    (HEAD + "hosts:\n  port: true\n", 5, "hosts.port", "must be a whole number"),
    (HEAD + "hosts:\n  user: -oProxyCommand=x\n", 5, "hosts.user", "'-oProxyCommand=x' cannot be the name of an account"),
    (HEAD + "hosts:\n  sudo:\n    password: s3cret\n", 6, "hosts.sudo.password", LITERAL),
    (HEAD + "hosts:\n  service:\n    manager: sytemd\n", 6, "hosts.service.manager", "must be one of systemd, sysv, docker, command; did you mean `systemd`?"),
    (HEAD + "hosts:\n  service: {unit: {node}}\n", 5, "hosts.service.unit", "must be text, not a mapping (a text that begins with a brace needs quotes)"),
    (HEAD + "hosts:\n  data: [var/lib/es]\n", 5, "hosts.data[0]", "must be an absolute path on one line; `{node}` is the only placeholder"),
    (HEAD + "hosts:\n  data: [/data, '/data/{nod}']\n", 5, "hosts.data[1]", "must be an absolute path on one line; `{node}` is the only placeholder"),
    (HEAD + 'hosts:\n  data: ["/data\\n"]\n', 5, "hosts.data[0]", "must be an absolute path on one line; `{node}` is the only placeholder"),
    (HEAD + "hosts:\n  data: /data\n", 5, "hosts.data", "must be a list, not a text"),
    (HEAD + "hosts:\n  data:\n", 5, "hosts.data", "has no value"),
    (HEAD + "hosts:\n  overrides:\n    es7: {data: [es7]}\n", 6, "hosts.overrides.es7.data[0]", "must be an absolute path on one line; `{node}` is the only placeholder"),
    (HEAD + "hosts:\n  service: {unit: 'es {node}'}\n", 5, "hosts.service.unit", "must be the name of a unit, script or container: letters, digits, any of . _ @ : - \\, and {node}"),
    (HEAD + "hosts:\n  service: {unit: 'es-{nod}'}\n", 5, "hosts.service", "unit: `{node}` is the only placeholder here"),
    (HEAD + "hosts:\n  service: {manager: command, stop: x}\n", 5, "hosts.service", "`manager: command` needs start, status as well"),
    (HEAD + "hosts:\n  service: {manager: command, stop: x, start: x, status: x, unit: x}\n", 5, "hosts.service", "unit: not for `manager: command`; its command lines name what they run"),
    (HEAD + "hosts:\n  service:\n    manager: command\n    stop: x\n    start: \"/bin/sh -c 'oops {node}\"\n    status: x\n", 8, "hosts.service.start", "a quote is opened and not closed, or a backslash comes last"),
    (HEAD + "hosts:\n  overrides:\n    es7:\n      service: {manager: command, stop: x, start: x, status: 'x \\'}\n", 7, "hosts.overrides.es7.service.status", "a quote is opened and not closed, or a backslash comes last"),
    (HEAD + "hosts:\n  service: {manager: command, stop: 'es-stop {name}', start: x, status: x}\n", 5, "hosts.service.stop", "`{name}` is no placeholder here: " + ONLY),
    (HEAD + "hosts:\n  service: {manager: command, stop: x, start: 'ssh {host} up {node}', status: x}\n", 5, "hosts.service.start", "`{host}` is no placeholder here: " + ONLY),
    (HEAD + "hosts:\n  overrides:\n    es7:\n      service: {manager: command, stop: x, start: x, status: 'up {name}'}\n", 7, "hosts.overrides.es7.service.status", "`{name}` is no placeholder here: " + ONLY),
    (HEAD + "hosts:\n  service: {manager: command, stop: 'es-stop {nod}', start: x, status: x}\n", 5, "hosts.service.stop", "`{nod}` is no placeholder here: " + ONLY),
    (HEAD + "hosts:\n  service: {manager: command, stop: x, start: 'up {NODE}', status: x}\n", 5, "hosts.service.start", "`{NODE}` is no placeholder here: " + ONLY),
    (HEAD + "hosts:\n  overrides:\n    es7: {address: '{host}.example'}\n", 6, "hosts.overrides.es7.address", "`{host}` is no placeholder here: " + NONE),
    (HEAD + "hosts:\n  service: {start: x}\n", 5, "hosts.service", "start: only for `manager: command`, and this one is systemd"),
    (HEAD + "riak: {}\n", 4, "riak", "only for `kind: riak`"),
    (HEAD + "hosts:\n  nodes: {riak1: 10.0.0.1}\n", 5, "hosts.nodes", "only for `kind: riak`; Elasticsearch has the addresses of its nodes; where those are wrong, `overrides: {NODE: {address: ADDRESS}}` puts it right"),
    (HEAD + "hosts:\n  overrides:\n    es7.x:\n      adress: a\n", 7, 'hosts.overrides["es7.x"]', "unknown key `adress`; did you mean `address`?"),
    (HEAD + "hosts:\n  overrides:\n    es7:\n", 6, "hosts.overrides.es7", "has no value"),
    (HEAD + "hosts:\n  overrides:\n    es7: {address: 'root@a'}\n", 6, "hosts.overrides.es7.address", "'root@a' is neither an IP address nor a host name"),
    (HEAD + "hosts:\n  overrides:\n    es7:\n      service: {manager: command}\n", 7, "hosts.overrides.es7.service", "`manager: command` needs stop, start, status as well"),
]  # fmt: skip

KIND = "kind: elasticsearch\n"
BUDGET = "must be a whole number of at least 1, or a percentage such as 10%"
DURATION = "must be a duration with its unit, such as 90s, 10m, 8h or 30d"

PLAYBOOKS = [
    ("strategy: node\n", None, "kind", "is missing"),
    (KIND + "strategy: rack\n", 2, "strategy", "must be one of node, zone, shard-safe"),
    (KIND + "max_unavailable: 0\n", 2, "max_unavailable", BUDGET),
    (KIND + "max_unavailable:\n", 2, "max_unavailable", "has no value"),
    (KIND + "max_unavailable: 0%\n", 2, "max_unavailable", BUDGET),
    (KIND + "max_unavailable: 101%\n", 2, "max_unavailable", "must be at most 100%"),
    (KIND + "max_unavailable: 1.5\n", 2, "max_unavailable", BUDGET),
    (KIND + "max_unavailable: true\n", 2, "max_unavailable", BUDGET),
    (KIND + "min_started_copies: 0\n", 2, "min_started_copies", "must be at least 1"),
    (KIND + "min_capacity: 50\n", 2, "min_capacity", "must be a percentage, such as 50%"),
    (KIND + "min_capacity: 100%\n", 2, "min_capacity", "must be below 100%: with all of them up, none could ever restart"),
    (KIND + "flush: off\n", 2, "flush", "must be true or false (YAML 1.2 takes yes, no, on and off for text)"),
    (KIND + "accept: {red: logs}\n", 2, "accept.red", "must be a list, not a text"),
    (KIND + "accept:\n  red:\n  - a\n  - 1\n", 5, "accept.red[1]", "must be text, in quotes"),
    (KIND + "lease: zookeeper\n", 2, "lease", "must be one of cluster, state"),
    (KIND + "allocation_while_down: new_primaries\n", 2, "allocation_while_down", "must be one of primaries, none: `new_primaries` keeps a returned node's primaries from starting"),
    (KIND + "allocation_while_down: all\n", 2, "allocation_while_down", "must be one of primaries, none"),
    (KIND + "zero_replica_indices: accept\n", 2, "zero_replica_indices", "`accept` needs names of indices: {accept: [logs-*]}"),
    (KIND + "zero_replica_indices: {accept: []}\n", 2, "zero_replica_indices.accept", "must not be empty"),
    (KIND + "zero_replica_indices: drop\n", 2, "zero_replica_indices", "must be one of refuse, add_replica"),
    (KIND + "rebalance_while_running: off\n", 2, "rebalance_while_running", "must be one of none, primaries, replicas, all"),
    (KIND + "recovery_limits:\n  max_bytes_per_sec: 100\n", 3, "recovery_limits.max_bytes_per_sec", "must be a size with its unit, such as 512kb, 100mb or 1gb (1mb is 1024 * 1024 bytes)"),
    (KIND + "recovery_limits:\n  max_bytes_per_sec: 0mb\n", 3, "recovery_limits.max_bytes_per_sec", "must be more than nothing and fit a 64-bit number"),
    (KIND + "transfer_limit: 8\n", 2, "transfer_limit", "only for `kind: riak`; here `recovery_limits` are what is raised"),
    (KIND + "settle: {consecutive: 0}\n", 2, "settle.consecutive", "must be at least 1"),
    (KIND + "deadlines:\n  stop: 10\n", 3, "deadlines.stop", DURATION),
    (KIND + "deadlines:\n  stop: 1h30m\n", 3, "deadlines.stop", DURATION),
    (KIND + "deadlines:\n  stop: 0s\n", 3, "deadlines.stop", "must be more than nothing and at most 3650d"),
    (KIND + "deadlines:\n  holt: 1h\n", 3, "deadlines", "unknown key `holt`; did you mean `hold`?"),
    (KIND + "on_failure: continue\n", 2, "on_failure", "must be stand_down"),
    (KIND + 'hooks:\n  before_stop:\n  - run: depool "{node}\n', 4, "hooks.before_stop[0].run", "a quote is opened and not closed, or a backslash comes last"),
    (KIND + "hooks:\n  after_recovery: [{run: 'pool \"{host}\"'}]\n", 3, "hooks.after_recovery[0].run", "`{host}` is no placeholder here: " + ONLY),
    (KIND + "gates:\n- command: {run: 'may-go {node}'}\n", 3, "gates[0].command.run", "`{node}` is no placeholder here: " + NONE),
    (KIND + "hooks:\n  before_stop: depool\n", 3, "hooks.before_stop", "must be a list, not a text"),
    (KIND + "hooks:\n  before_stop: [depool]\n", 3, "hooks.before_stop[0]", "must be a mapping of keys (`key: value`), not a text"),
    (KIND + "hooks:\n  before_stop: [{run: depool {node}}]\n", 3, None, "is not valid YAML: a comma or a closing bracket is missing; a text that holds braces or brackets needs quotes"),
    (KIND + "hooks:\n  before_stop:\n  - run: x\n    locl: true\n", 5, "hooks.before_stop[0]", "unknown key `locl`; did you mean `local`?"),
]  # fmt: skip


def _expected(file: str, line: int | None, key: str | None, message: str) -> str:
    place = file if line is None else f"{file}:{line}"
    return f"{place}: {key}: {message}" if key else f"{place}: {message}"


def test_a_bad_cluster_file_is_refused_by_file_line_and_key(subtests: pytest.Subtests) -> None:
    for text, line, key, message in CLUSTER_FILES:
        with subtests.test(text=text, line=line, key=key, message=message):
            with pytest.raises(ConfigError) as caught:
                check_cluster(parse(text, "prod.yml"), path=Path("prod.yml"), home=Path("/home/op"))
            assert str(caught.value) == _expected("prod.yml", line, key, message)
            assert (caught.value.file, caught.value.line, caught.value.key) == ("prod.yml", line, key)
            assert caught.value.exit_code is ExitCode.USAGE


def test_a_bad_playbook_is_refused_by_file_line_and_key(subtests: pytest.Subtests) -> None:
    for text, line, key, message in PLAYBOOKS:
        with subtests.test(text=text, line=line, key=key, message=message):
            with pytest.raises(ConfigError) as caught:
                check_playbook(parse(text, "book.yml"), path=Path("book.yml"), name="book")
            assert str(caught.value) == _expected("book.yml", line, key, message)


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
            text = KIND + f"hooks: {{before_stop: [{{run: {json.dumps(line)}}}]}}\n"
            spec = check_playbook(parse(text, "book.yml"), path=Path("book.yml"), name="book").spec
            assert [hook.run for hook in spec.hooks.before_stop] == [line]


def test_all_faults_of_a_file_are_named_in_the_order_of_lines() -> None:
    text = HEAD + "expect: {nodes: 0}\ngates: []\nhosts:\n  port: x\n"
    with pytest.raises(ConfigError) as caught:
        check_cluster(parse(text, "prod.yml"), path=Path("prod.yml"), home=Path("/home/op"))
    assert str(caught.value).splitlines()[0] == "prod.yml:4: expect.nodes: must be at least 1"
    assert str(caught.value).splitlines()[1].startswith("prod.yml:5: unknown key; known: kind, name")
    assert str(caught.value).splitlines()[2:] == ["prod.yml:7: hosts.port: must be a whole number"]


def test_a_wrong_file_shows_nothing_that_it_holds() -> None:
    """It may be one of secrets. Those that are unknown are counted, and five faults are shown at most."""
    text = "".join(f"TOKEN_{number}: hunter{number}\n" for number in range(9))
    with pytest.raises(ConfigError) as caught:
        check_cluster(parse(text, ".env"), path=Path(".env"), home=Path("/home/op"))
    said = str(caught.value).splitlines()
    assert not any(word in line for line in said for word in ("TOKEN", "hunter"))
    assert len(said) <= 6
    assert said[0].startswith(".env:1: unknown key; known: kind, name, endpoints, ")
    assert said[0].endswith("(9 such keys)")


def test_five_faults_are_shown_and_the_others_counted() -> None:
    deadlines = "".join(
        f"  {name}: never\n" for name in ("stop", "start", "rejoin", "recover", "hold", "gate")
    )
    with pytest.raises(ConfigError) as caught:
        check_playbook(parse(f"{KIND}deadlines:\n{deadlines}", "b.yml"), path=Path("b.yml"), name="b")
    said = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in said] == [*(f"b.yml:{line}" for line in range(3, 8)), "b.yml"]
    assert said[-1] == "b.yml: and 1 more"


def test_a_playbook_key_of_a_later_version_is_refused_as_such(subtests: pytest.Subtests) -> None:
    for text, message in [
        (KIND + "notify:\n", "f.yml:2: notify: not in this version"),
        ("kind: riak\nnotify: []\n", "f.yml:2: notify: not in this version"),
    ]:
        with subtests.test(text=text, message=message):
            with pytest.raises(NotInThisVersion) as caught:
                check_playbook(parse(text, "f.yml"), path=Path("f.yml"), name="f")
            assert str(caught.value) == message


def test_a_later_key_beside_a_fault_is_told_among_the_faults() -> None:
    with pytest.raises(ConfigError) as caught:
        check_playbook(parse(KIND + "notify: []\nflush: 1\n", "f.yml"), path=Path("f.yml"), name="f")
    assert str(caught.value) == "f.yml:2: notify: not in this version\nf.yml:3: flush: must be true or false"


def _file_error(path: Path) -> OrchestratorError:
    with pytest.raises(ConfigError) as caught:
        read(path)
    return caught.value


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert (
        str(_file_error(tmp_path / "no.yml"))
        == f"{tmp_path}/no.yml: cannot be read: No such file or directory"
    )
    assert str(_file_error(tmp_path)) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_file_of_another_encoding_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yml"
    path.write_bytes(b"kind: elasticsearch\nname: caf\xe9\n")
    assert str(_file_error(path)) == f"{path}:2: is not UTF-8 text"


def test_a_huge_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "huge.yml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    assert str(_file_error(path)) == f"{path}: is larger than 256 KiB: is this the right file?"


@pytest.mark.parametrize("text", ["a: " + "[" * 200 + "]" * 200, "[" * 5000, "a: &a [*a]"])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="nested deeper than 20 levels"):
        parse(text, "deep.yml")


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="holds more than 50000 values"):
        parse("\n".join(lines), "bomb.yml")
