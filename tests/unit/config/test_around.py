"""`notify`, silences, metrics, annotations and the hooks of a run: what they mean, and their names."""

from __future__ import annotations

from pathlib import Path

from orchestrator.config.around import Around, On
from orchestrator.config.cluster import check_cluster
from orchestrator.config.playbook import around_in, check_playbook
from orchestrator.config.yaml import parse

CLUSTER = "kind: elasticsearch\nname: x\nendpoints: ['http://a:1']\n"
BOOK = "kind: elasticsearch\n"
MAIL = "smtp://u@h:25/?from=a@b&to=c@d"


def around(cluster: str = "", book: str = "") -> Around:
    file = check_cluster(parse(CLUSTER + cluster, "c.yml"), path=Path("/etc/c.yml"), home=Path("/home/u"))
    playbook = check_playbook(parse(BOOK + book, "b.yml"), path=Path("/books/b.yml"), name="b")
    return around_in(file, playbook)


def test_where_alerts_are_silenced() -> None:
    matchers = "[{instance: '{host}:9100'}]"
    at = around(
        f"silence: {{alertmanager: {{url: 'http://a:9093/am/', matchers: {matchers}, auth: file:pw}}}}\n"
    ).alertmanager
    assert at is not None
    assert (at.url, at.name, at.at_most) == ("http://a:9093/am", "http://a:9093", 4 * 3600.0)
    assert (at.matchers, str(at.auth)) == (({"instance": "{host}:9100"},), "file:/etc/pw")
    assert around().empty


def test_where_metrics_are_written() -> None:
    assert around("metrics: {textfile: ../o.prom}\n").textfile == Path("/etc/../o.prom")


def test_where_annotations_are_made() -> None:
    found = around("annotations: {grafana: {url: 'https://g:3000/', token: file:token, ca: ca.pem}}\n")
    assert found.grafana is not None
    assert (found.grafana.url, found.grafana.ca) == ("https://g:3000", "/etc/ca.pem")
    assert list(map(str, found.references)) == ["file:/etc/token"]


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
