"""`notify` and the hooks of a run: what is refused, and what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.around import Around, On
from orchestrator.config.cluster import check_cluster
from orchestrator.config.playbook import around_in, check_playbook
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError

CLUSTER = "kind: elasticsearch\nname: x\nendpoints: ['http://a:1']\n"
BOOK = "kind: elasticsearch\n"
SECRET = "hunter2"  # noqa: S105  (a test's own)
MAIL = "smtp://u@h:25/?from=a@b&to=c@d"


def around(cluster: str = "", book: str = "") -> Around:
    file = check_cluster(parse(CLUSTER + cluster, "c.yml"), path=Path("/etc/c.yml"), home=Path("/home/u"))
    playbook = check_playbook(parse(BOOK + book, "b.yml"), path=Path("/books/b.yml"), name="b")
    return around_in(file, playbook)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("url: nowhere", "must be a URL, or a reference to one"),
        ("url: 5", "must be a URL, or a reference to one"),
        (f"url: 'https://u:{SECRET}@h/'", "must not hold a secret"),
        (f"url: 'https://h/?token={SECRET}'", "must not hold a secret"),
        (f"url: 'slack://{SECRET}'", "must begin with https://, http://, smtps:// or smtp://"),
        (f"url: 'slack://{SECRET}'", "so write a reference to it: env:NAME"),
        ("url: 'https:///x'", "must be a URL with a host"),
        ("url: 'https://h:0/'", "must be a URL with a host"),
        (f"url: 'https://h/ {SECRET}'", "must be a URL such as"),
        ('url: "https://h\\u202e/"', "must be a URL such as"),
        ("url: 'smtp://h:25/?to=a@b'", "with both addresses"),
        ("url: 'smtp://h:25/?from=a@b&to=c@d&x=1'", "with both addresses"),
        ("url: 'smtp://h/?from=a@b&from=e@f&to=c@d'", "with both addresses"),
        ("url: 'smtp://h/?from=a@b%0d%0aBcc:e@f&to=c@d'", "must be addresses"),
        ("url: 'smtp://h/?from=a@b&to=c@d%0aBcc:e@f'", "must be addresses"),
        ("url: 'smtp://h/?from=a@b&to=c@d&to=%00e@f'", "must be addresses"),
        ("url: 'smtp://h/?from=%20&to=c@d'", "must be addresses"),
        ("url: 'smtp://h/?from=a@b&to=,'", "must be addresses"),
        ("url: 'smtp://h/?from=a@b&to=c%20d'", "must be addresses"),
        ("url: 'smtp://h/?from=ä@b&to=c@d'", "must be addresses"),
        ("url: 'https://h/', on: []", "must not be empty"),
        ("url: 'https://h/', on: [ended]", "must be one of"),
        ("url: 'https://h/', after: 10", "a duration"),
        ("url: 'https://h/', text: '{nodes}'", "`{nodes}` is no placeholder here"),
        ("url: 'https://h/', password: env:P", "needs a user in the URL"),
        ("url: 'https://u@h/', password: env:P, bearer: env:B", "`bearer` is for a webhook"),
        (f"url: '{MAIL}', bearer: env:B", "`bearer` is for a webhook"),
        (f"url: '{MAIL}', password: {SECRET}", "never written here"),
    ],
)
def test_what_is_refused(entry: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        around(f"notify:\n- {{{entry}}}\n")
    assert str(caught.value).startswith("c.yml:5: notify[0]")
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


HEAD = "silence:\n  alertmanager:\n"
ALERTS = f"{HEAD}    url: 'http://a:9093/am/'\n"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("url: 'http://a:9093/#/alerts'\n    matchers: [{a: b}]", "must not have a `#`"),
        ("matchers: []", "must not be empty"),
        ("matchers: [{}]", "an item has no matcher"),
        ("matchers: [{a: ''}]", "would silence almost every alert"),
        ("matchers: [{'a b': x}]", "labels are letters"),
        ("matchers: [{a: b, c: d}, {c: d, a: b}]", "an item is there twice"),
        ('matchers: [{a: "x\\ny"}]', "printable characters"),
        (f"matchers: [{{a: {'x' * 1001}}}]", "at most 1000 printable characters"),
        (f"matchers: [{', '.join(f'{{a: b{number}}}' for number in range(21))}]", "at most 20 items"),
        ("matchers: [{a: '{nodes}'}]", "`{nodes}` is no placeholder here"),
        ("matchers: [{a: b}]\n    auth: env:A\n    bearer: env:B", "not both"),
        (f"matchers: [{{a: b}}]\n    bearer: {SECRET}", "never written here"),
    ],
)
def test_silences_that_are_refused(keys: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        around(f"{HEAD if keys.startswith('url') else ALERTS}    {keys}\n")
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_where_alerts_are_silenced() -> None:
    at = around(f"{ALERTS}    matchers: [{{instance: '{{host}}:9100'}}]\n    auth: file:pw\n").alertmanager
    assert at is not None
    assert (at.url, at.name, at.at_most) == ("http://a:9093/am", "http://a:9093", 4 * 3600.0)
    assert str(at.auth) == "file:/etc/pw"
    assert around().empty


def test_where_metrics_are_written() -> None:
    assert around("metrics: {textfile: ../o.prom}\n").textfile == Path("/etc/../o.prom")
    with pytest.raises(ConfigError, match=r"must end in \.prom"):
        around("metrics: {textfile: /var/lib/o.txt}\n")
    with pytest.raises(ConfigError, match="must be one line of printable text"):
        around('metrics: {textfile: "/var/lib/o\\0.prom"}\n')


GRAFANA = "annotations:\n  grafana: {url: 'https://g:3000/'"


def test_where_annotations_are_made() -> None:
    found = around(f"{GRAFANA}, token: file:token, ca: ca.pem}}\n")
    assert found.grafana is not None
    assert (found.grafana.url, found.grafana.ca) == ("https://g:3000", "/etc/ca.pem")
    assert list(map(str, found.references)) == ["file:/etc/token"]
    for keys, said in (("", "token"), (f", token: {SECRET}", "never written here")):
        with pytest.raises(ConfigError, match=said) as caught:
            around(f"{GRAFANA}{keys}}}\n")
        assert SECRET not in str(caught.value)


def test_targets_of_both_files_have_names_of_their_own() -> None:
    found = around(
        "notify:\n- url: env:SLACK_URL\n- url: 'https://u@chat:8443/a?b=c'\n"
        "- {url: env:SLACK_URL, on: [failed]}\n",
        f"notify: [{{url: '{MAIL}', password: file:pw}}, {{url: file:url, name: pager}}]\n",
    )
    names = ["env:SLACK_URL", "https://chat:8443", "env:SLACK_URL 2", "smtp://h:25", "pager"]
    assert [target.name for target in found.targets] == names
    references = ["env:SLACK_URL", "env:SLACK_URL", "file:/books/url", "file:/books/pw"]
    assert sorted(map(str, found.references)) == sorted(references)
    assert found.targets[0].on == frozenset(On)
    assert (found.targets[2].on, found.targets[0].after) == (frozenset({On.FAILED}), 600.0)


def test_hooks_of_a_run() -> None:
    found = around(book="hooks:\n  run_held: [{run: a, after: 1m}, {run: b}]\n  run_ended: [{run: c}]\n")
    assert [(hook.name, hook.run, hook.folder) for hook in found.hooks] == [
        ("hook run_held", "a", "/books"),
        ("hook run_held 2", "b", "/books"),
        ("hook run_ended", "c", "/books"),
    ]
    assert [hook.after for hook in found.hooks] == [60.0, 600.0, 600.0]
    assert found.hooks[2].on == {On.DONE, On.PAUSED, On.STOOD_DOWN}
    with pytest.raises(ConfigError, match="at most 60s"):
        around(book="hooks:\n  run_ended: [{run: c, timeout: 2m}]\n")


def test_hosts_without_a_cluster_have_no_runs_to_report() -> None:
    text = "kind: hosts\nname: x\nhosts: {names: {a: {}}}\nnotify: [{url: env:A}]\n"
    with pytest.raises(ConfigError, match="not for `kind: hosts`, which nothing restarts"):
        check_cluster(parse(text, "c.yml"), path=Path("c.yml"), home=Path("/"))
