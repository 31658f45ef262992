"""One OpenSearch node with its security plugin: `secured_opensearch(roles)`.

The reduced archives of Maven Central lack the plugin, which is there too, for these two versions together.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.hostlab.hosts import wait_until
from tests.lab.client import Access, LabClient
from tests.lab.distributions import Distribution, Product, cache_folder, install
from tests.lab.java import find_java
from tests.lab.launch import java_command
from tests.lab.layout import LOOPBACK, account, free_ports, give_away, share_home
from tests.lab.security import LabUser, Security, write_security

DISTRIBUTION = Distribution(product=Product.OPENSEARCH, version="2.19.1", java_minimum=17, java_maximum=23)
PLUGIN = "org.opensearch.plugin:opensearch-security:2.19.1.0:zip"
ADMIN, NODE = "lab", "os1"
PASSWORD = "lab-password"  # noqa: S105  (dies with the node)
_HASH = "$2b$04$abcdefghijklmnopqrstuuRmh8HtELSGLRIbn8Tav9ZLLfCC8wwMW"
"""Of that password, as the plugin keeps it."""
START_SECONDS = 120.0


@contextmanager
def secured_opensearch(roles: Mapping[str, Any]) -> Iterator[Access]:
    """A node with these roles, each with a user of its name.

    Yields:
        The administrator's access; every user has the same password.
    """
    with tempfile.TemporaryDirectory(prefix="orchestrator-lab-") as folder:
        Path(folder).chmod(0o755)  # another user runs the server
        with _running(Path(folder), roles) as access:
            yield access


@contextmanager
def _running(folder: Path, roles: Mapping[str, Any]) -> Iterator[Access]:
    home, node, (ports,) = _unpacked(folder), folder / NODE, free_ports(1)
    for inner in ("data", "logs", "tmp", "snapshots"):
        (node / inner).mkdir(parents=True)
    shutil.copytree(home / "config", node / "config")
    shutil.copytree(
        home / "plugins/opensearch-security/config", node / "config/opensearch-security", dirs_exist_ok=True
    )
    users = Security(users=(LabUser(name=ADMIN, password=PASSWORD),))
    write_security(users, ca=folder / "ca.crt", configs=[node / "config"])
    _write_users(node / "config/opensearch-security", roles)
    _write_settings(node, ports.http, ports.transport)
    give_away(folder, account())
    java = find_java(DISTRIBUTION).path
    access = Access(
        endpoints=(f"https://{LOOPBACK}:{ports.http}",),
        user=ADMIN,
        password=PASSWORD,
        ca=str(folder / "ca.crt"),
    )
    with (node / "logs/output").open("w") as output:
        process = subprocess.Popen(  # noqa: S603  (the server under test)
            java_command(DISTRIBUTION, home=home, java=java, folder=node, heap_mb=512),
            cwd=home,
            user=account().uid,
            group=account().gid,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        started = wait_until(lambda: process.poll() is not None or _answers(access), seconds=START_SECONDS)
        assert started, (node / "logs/output").read_text()[-2000:]
        assert process.poll() is None, (node / "logs/output").read_text()[-2000:]
        yield access
    finally:
        process.terminate()
        process.wait(30)


def _answers(access: Access) -> bool:
    client = LabClient(access)
    try:
        return client.send(access.endpoints[0], "GET", "/_cluster/health").ok
    except OSError:
        return False
    except Exception as error:  # noqa: BLE001  (urllib3 has many)
        return "urllib3" not in type(error).__module__
    finally:
        client.close()


def _unpacked(folder: Path) -> Path:
    """The server with the plugin in it, in this folder."""
    cache = cache_folder()
    home = install(DISTRIBUTION, cache=cache, progress=print)
    archive = cache / "archives/opensearch-security-2.19.1.0.zip"
    if not archive.is_file():
        command = (
            "mvn",
            "-q",
            "-B",
            "dependency:copy",
            f"-Dartifact={PLUGIN}",
            f"-DoutputDirectory={archive.parent}",
        )
        subprocess.run(command, check=True, capture_output=True, timeout=600)  # noqa: S603  (a fixed command)
    shared = share_home(home, folder / DISTRIBUTION.name, account())
    with zipfile.ZipFile(archive) as content:
        content.extractall(shared / "plugins/opensearch-security")
    return shared


def _write_users(folder: Path, roles: Mapping[str, Any]) -> None:
    """The plugin's files, with which it makes its index."""
    for file, kind, content in (
        ("internal_users.yml", "internalusers", {name: {"hash": _HASH} for name in (ADMIN, *roles)}),
        ("roles.yml", "roles", dict(roles)),
        (
            "roles_mapping.yml",
            "rolesmapping",
            {"all_access": {"users": [ADMIN]}, **{name: {"users": [name]} for name in roles}},
        ),
    ):
        meta = {"type": kind, "config_version": 2}
        (folder / file).write_text(json.dumps({"_meta": meta, **content}), encoding="utf-8")


def _write_settings(node: Path, http: int, transport: int) -> None:
    layers = {
        f"plugins.security.ssl.{layer}.{key}": value
        for layer in ("http", "transport")
        for key, value in (
            ("pemcert_filepath", "node.crt"),
            ("pemkey_filepath", "node.key"),
            ("pemtrustedcas_filepath", "ca.crt"),
        )
    }
    settings = {
        "cluster.name": "lab",
        "node.name": NODE,
        "path.data": str(node / "data"),
        "path.logs": str(node / "logs"),
        "path.repo": str(node / "snapshots"),
        "network.host": LOOPBACK,
        "http.port": http,
        "transport.port": transport,
        "discovery.type": "single-node",
        "cluster.routing.allocation.disk.threshold_enabled": False,
        "plugins.security.ssl.http.enabled": True,
        "plugins.security.ssl.transport.enforce_hostname_verification": False,
        "plugins.security.allow_default_init_securityindex": True,
        "plugins.security.nodes_dn": ["CN=orchestrator lab node"],
        **layers,
    }
    lines = (f"{key}: {json.dumps(value)}\n" for key, value in settings.items())
    (node / "config/opensearch.yml").write_text("".join(lines), encoding="utf-8")
