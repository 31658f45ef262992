"""A lab cluster with TLS and file users: a superuser, one with the shipped role, one who may only look."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.lab.security import LabUser, Security

ROLE: Final = Path(__file__).parents[2] / "docs/reference/elasticsearch-role.yml"
# The passwords die with the lab.
ADMIN: Final = LabUser(name="lab", password="lab-password")  # noqa: S106
OPS: Final = LabUser(name="ops", password="ops-password", roles=("orchestrator",))  # noqa: S106
READER: Final = LabUser(name="reader", password="reader-password", roles=("reader",))  # noqa: S106
SECURED: Final = Security(
    users=(ADMIN, OPS, READER),
    roles_yml=ROLE.read_text(encoding="utf-8") + "\nreader:\n  cluster: [monitor]\n",
)
