"""Where a new secret of a cluster file comes from while the program runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.elasticsearch import ClusterSpec
from orchestrator.config.secrets import SecretResolver
from orchestrator.runs.reach import renewal_of

ENDPOINTS = ["https://es1:9200"]


def spec(**auth: Any) -> ClusterSpec:
    return ClusterSpec.model_validate(
        {"kind": "elasticsearch", "name": "prod", "endpoints": ENDPOINTS, "auth": auth}
    )


@pytest.fixture
def resolver(tmp_path: Path) -> SecretResolver:
    return SecretResolver(environment={"PW": "new"}, folder=tmp_path, home=tmp_path)


def test_a_variable_of_a_running_program_is_not_read_again(resolver: SecretResolver) -> None:
    assert renewal_of(spec(basic={"username": "ops", "password": "env:PW"}), resolver) is None
    assert renewal_of(spec(api_key="env:PW"), resolver) is None


def test_a_new_api_key_that_no_header_takes_is_not_sent(resolver: SecretResolver, tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("пароль")
    password = renewal_of(spec(basic={"username": "ops", "password": "file:pw"}), resolver)
    key = renewal_of(spec(api_key="file:pw"), resolver)
    assert password is not None
    assert key is not None
    assert (password.read(), key.read()) == ("пароль", None)
