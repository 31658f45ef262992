"""The `hosts` section of a cluster file: access to the machine of each node, and its service."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import AfterValidator, Discriminator, Field, Tag

from orchestrator.config.secrets import SecretReference
from orchestrator.config.services import ELASTICSEARCH, ServiceSpec, merge_service
from orchestrator.config.spec import (
    MAPPING,
    NO_PLACEHOLDER,
    SCALAR,
    Name,
    Reference,
    Spec,
    Unset,
    matching,
    shape,
)
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import ServiceSettings
from orchestrator.model.policy import Together
from orchestrator.untrusted import account, address

PORT: Final = Field(ge=1, le=65535, strict=True)

DataPath = Annotated[
    str,
    matching(
        r"/(?:[^{}\x00-\x1f\x7f]|\{node\}){0,1000}",
        "must be an absolute path on one line; `{node}` is the only placeholder",
    ),
]
User = Annotated[str, AfterValidator(account)]
Address = Annotated[str, NO_PLACEHOLDER, AfterValidator(address)]
HostName = Annotated[str, AfterValidator(address)]


class SudoSpec(Spec):
    """Sudo with a password."""

    password: Reference = Field(description="The SSH user's password for sudo, by reference.")


AUTO: Final = "auto"
Sudo = Annotated[
    Annotated[Literal["auto", True, False], Tag(SCALAR)] | Annotated[SudoSpec, Tag(MAPPING)],
    Discriminator(shape),
]


class HostKeys(Spec):
    """Keys that `hosts` and each of its `overrides` share. Of an override only what is given counts."""

    connect: Connect = Field(
        default=Connect.SSH,
        description="`ssh`: over SSH, by this program. `openssh`: by your own `ssh`, with everything that its"
        " configuration can do. `local`: as commands on this machine.",
    )
    user: Unset[User] = Field(
        default=None,
        description="SSH user, such as `deploy`, `DOMAIN\\deploy` or `deploy@realm`. Default: the SSH"
        " configuration, or the user of this process.",
    )
    port: Unset[Annotated[int, PORT]] = Field(
        default=None, description="SSH port. Default: the SSH configuration, or 22.", examples=[22]
    )
    identity: Unset[Name] = Field(
        default=None,
        description="Private key. The keys of the agent and of the SSH configuration are tried too.",
        examples=["~/.ssh/id_ed25519"],
    )
    known_hosts: Name = Field(
        default="~/.ssh/known_hosts",
        description=(
            "File of host keys. An unknown or changed key is always refused. Without this key: the files"
            " that ssh reads."
        ),
    )
    sudo: Sudo = Field(
        default=AUTO,
        description="Whether commands that need root use `sudo -n`. `auto`: yes, unless the account on"
        " the host is root. `{password: REFERENCE}` if sudo asks for one.",
    )
    service: ServiceSpec = Field(
        default_factory=ServiceSpec,
        description="The service manager of the node's process. An override changes single keys of it, or"
        " replaces it if it names another manager.",
    )
    data: Unset[tuple[DataPath, ...]] = Field(
        default=None,
        description="Data paths of the nodes (`path.data`; Riak: `platform_data_dir`); `{node}` is the"
        " node's name. Tuning sets only the disks below them, and none without paths.",
        examples=[["/var/lib/elasticsearch"]],
    )


class OverrideSpec(HostKeys):
    """Overrides for the nodes that a name or a glob matches. A key that is left out is as in `hosts`."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {"riak": "only for `kind: riak`"}

    address: Unset[Address] = Field(
        default=None,
        description="IP address, host name or alias in the SSH configuration; an alias has the form of a host"
        " name. Default: the node's transport publish address; of Riak what `hosts.nodes`, or the node's"
        " name, says. Riak's HTTP port is looked for there too, unless an endpoint is that of the node.",
    )

    @property
    def own_service(self) -> ServiceSpec | None:
        """Its `service`; None if it has none."""
        return self.service if "service" in self.model_fields_set else None


ONLY_HOSTS: Final = "only for `kind: hosts`"


class ReachedHostsSpec(HostKeys):
    """How hosts are reached, of any kind of cluster file."""

    overrides: dict[str, OverrideSpec] = Field(
        default_factory=dict,
        description="By node name or glob: any other key of `hosts`, and `address`. All matching entries"
        " apply, globs in the order of the file, then the exact name; a later entry overrides an"
        " earlier one.",
    )


class HostsSpec(ReachedHostsSpec):
    """How the nodes' hosts are reached."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "nodes": "only for `kind: riak`; Elasticsearch has the addresses of its nodes; where those are wrong,"
        " `overrides: {NODE: {address: ADDRESS}}` puts it right",
        "names": ONLY_HOSTS,
    }

    together: Together = Field(
        default=Together.REBOOT,
        description="When the nodes of one machine go down in one wave: `always`, `reboot` (only with"
        " `--reboot`) or `never` (then `--reboot` holds where nodes share a machine). A machine is"
        " never split: if its nodes may not go together, the run holds.",
    )


class NamedHostSpec(Spec):
    """A host without a cluster."""

    address: Unset[Address] = Field(
        default=None,
        description="IP address, host name or alias in the SSH configuration. Default: the host's name.",
    )
    group: Unset[Name] = Field(
        default=None, description="Its group, such as a rack: `--zone` selects the hosts of one."
    )


def _some(names: Mapping[str, NamedHostSpec]) -> Mapping[str, NamedHostSpec]:
    if not names:
        raise ValueError("must not be empty")
    return names


class NamedHostsSpec(ReachedHostsSpec):
    """The hosts, and how they are reached."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "nodes": "not for `kind: hosts`: `names` has its hosts and their addresses",
        "together": "not for `kind: hosts`, which nothing restarts",
    }

    service: ServiceSpec = Field(
        default_factory=ServiceSpec,
        description="The service whose limits are tuned: `unit`, and `manager: sysv` for an init script."
        " Default: none, and then the limits of a profile do not apply. It is never stopped or started.",
    )
    names: Annotated[dict[HostName, NamedHostSpec], AfterValidator(_some)] = Field(
        description="The hosts by name: `{cass1: {address: 10.1.0.1, group: rack1}, cass2: {}}`. Programs of"
        " several services on one machine are several names with its address, each with its own `service`"
        " in `overrides`."
    )


class FileKeys(Spec):
    """What every cluster file has, and what is known of its nodes by their kind before anything is read."""

    FILE: ClassVar[str] = "cluster file"
    NODE: ClassVar[str] = "node of the cluster"  # what the file calls a node, for messages

    if TYPE_CHECKING:  # each kind declares them at their place among its keys
        name: Name
        hosts: ReachedHostsSpec

    def usual_service(self, node: str | None = None) -> ServiceSettings:
        """The default service manager of a node; None: for checks of the whole file.

        Raises:
            ValueError: the node's name cannot be used in its commands.
        """
        del node
        return ELASTICSEARCH

    def names_of(self, node: str) -> tuple[str, ...]:
        """Other names by which overrides may mean a node."""
        del node
        return ()

    def address_of(self, node: str) -> str | None:
        """The address of a node's machine, without overrides; None if only the cluster has it."""
        del node
        return None

    def names(self) -> list[str]:
        """The nodes that the file names; the cluster may have others."""
        return [name for name in self.hosts.overrides if not set(name) & set("*?[")]

    def strangers(self, nodes: Collection[str]) -> list[tuple[str, str]]:
        """Entries of `hosts` that match none of these nodes, each with its key."""
        names = [*nodes, *(name for node in nodes for name in self.names_of(node))]
        found = (
            pattern for pattern in self.hosts.overrides if not any(_matches(name, pattern) for name in names)
        )
        return [("overrides", pattern) for pattern in found]

    def logins(self) -> tuple[SecretReference, ...]:
        """The secrets with which the cluster is reached."""
        return ()

    def keys_of(self, node: str, usual: ServiceSettings) -> dict[str, Any]:
        """The keys of one node: the general ones with those of its overrides. None: neither gives it.

        A key that an override gives counts, even with the value that it would have anyway.

        Args:
            node: its name.
            usual: the default service manager.
        """
        keys: dict[str, Any] = {"address": self.address_of(node)}
        keys |= {key: getattr(self.hosts, key) for key in HostKeys.model_fields}
        if "known_hosts" not in self.hosts.model_fields_set:
            keys["known_hosts"] = None  # the files that ssh reads
        for override in matching_overrides((*self.names_of(node), node), self.hosts.overrides):
            given = {key: getattr(override, key) for key in override.model_fields_set if key in keys}
            if override.own_service is not None:
                given["service"] = merge_service(keys["service"], override.own_service, usual)
            keys |= given
        return keys


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


Override = TypeVar("Override", bound=OverrideSpec)


def matching_overrides(names: Collection[str], overrides: Mapping[str, Override]) -> list[Override]:
    """The overrides of a node by any of its names, in the order in which they are applied."""
    globs = [
        over
        for pattern, over in overrides.items()
        if pattern not in names and any(_matches(name, pattern) for name in names)
    ]
    return [*globs, *(overrides[name] for name in names if name in overrides)]
