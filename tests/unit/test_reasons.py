"""What is wrong with several places, in one line."""

from __future__ import annotations

from orchestrator.model.reading import reasons_by_place


def test_a_remedy_for_all_places_is_at_the_end_once() -> None:
    urls = [f"https://es{n}:9200" for n in range(1, 4)]
    same = {url: f"the certificate of {url} is not trusted (self-signed): set `tls.ca`" for url in urls}
    said = reasons_by_place(same)
    assert said.count("set `tls.ca`") == 1
    assert said.endswith("https://es3:9200 is not trusted (self-signed): set `tls.ca`")
    apart = reasons_by_place({**same, urls[0]: f"{urls[0]} does not answer"})
    assert apart.count("set `tls.ca`") == 2
    assert reasons_by_place({"es1": "timed out: no route", "es2": "refused: no route"}).count("no route") == 2
