"""How the cluster of a cluster file is reached, and where a new secret comes from while the program runs."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.config.cluster import ClusterFile, ClusterSpec
from orchestrator.config.secrets import Scheme, SecretReference, SecretResolver, Source
from orchestrator.stores.elasticsearch.access import Access


def access_of(file: ClusterFile, spec: ClusterSpec, resolver: SecretResolver) -> Access:
    """How the cluster of a file is reached; raises ConfigError where a file or a secret is missing."""
    file.check_files()
    tls = spec.tls
    access = Access(
        endpoints=tuple(spec.endpoints),
        ca=str(file.local_path(tls.ca)) if tls.ca else None,
        verify=tls.verify,
        strict=tls.strict,
        client_cert=str(file.local_path(tls.client_cert)) if tls.client_cert else None,
        client_key=str(file.local_path(tls.client_key)) if tls.client_key else None,
        fingerprint=tls.fingerprint,
        product=spec.product,
        version=spec.version,
    )
    secret = _secret_of(spec)
    if secret is None:
        return access
    value = resolver.resolve(secret, header=_is_header(spec)).reveal()
    access = replace(access, source=secret.shown, fixed=secret.scheme is Scheme.ENV)
    basic = spec.auth.basic if spec.auth is not None else None
    if basic is None:
        return replace(access, api_key=value)
    return replace(access, username=basic.username, password=value)


def _secret_of(spec: ClusterSpec) -> SecretReference | None:
    auth = spec.auth
    if auth is None:
        return None
    return auth.api_key if auth.basic is None else auth.basic.password


def _is_header(spec: ClusterSpec) -> bool:
    """An API key is sent as it is."""
    return spec.auth is not None and spec.auth.api_key is not None


def renewal_of(spec: ClusterSpec, resolver: SecretResolver) -> Source | None:
    """Where a new secret comes from in a running program; None if the secret cannot change."""
    secret = _secret_of(spec)
    if secret is None or secret.scheme is Scheme.ENV:
        return None
    return Source(resolver, secret, header=_is_header(spec))
