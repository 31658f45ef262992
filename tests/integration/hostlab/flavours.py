"""What hosts there are to choose from."""

from __future__ import annotations

from dataclasses import dataclass

from tests.lab.distributions import Distribution, Product, find_distribution
from tests.lab.errors import LabError


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """One kind of host."""

    name: str  # as tests ask for it
    init: str  # `systemd` or `sysv`; also the suffix of its Dockerfile
    distribution: Distribution  # the server on it
    # whether `make test` brings it up; one host of it. Each costs minutes: an image, and a boot.
    usual: bool = False
    on: str = ""  # the flavour whose image this one adds to, by a Dockerfile of its own name

    @property
    def tunable(self) -> bool:
        """Whether a test may write to the kernel there, which is the machine's; the lab puts it back."""
        return self.on != ""

    @property
    def unit(self) -> str:
        """The service's name, which is the product's as its packages have it."""
        return self.distribution.product.value

    @property
    def secured(self) -> bool:
        """Whether nodes speak TLS and ask who is there; the OpenSearch archive has neither."""
        return self.distribution.product is Product.ELASTICSEARCH


FLAVOURS = (
    Flavour(name="9.1.0", init="systemd", distribution=find_distribution("9.1.0")),
    Flavour(name="8.19.0", init="systemd", distribution=find_distribution("8.19.0")),
    Flavour(name="opensearch-2.19.0", init="systemd", distribution=find_distribution("opensearch-2.19.0")),
    Flavour(name="tuning", init="systemd", distribution=find_distribution("9.1.0"), on="9.1.0", usual=True),
    Flavour(name="sysv", init="sysv", distribution=find_distribution("9.1.0")),
    Flavour(name="sysv-tuning", init="sysv", distribution=find_distribution("9.1.0"), on="sysv"),
)


def find_flavour(name: str) -> Flavour:
    """The flavour of that name.

    Raises:
        LabError: there is none.
    """
    for flavour in FLAVOURS:
        if flavour.name == name:
            return flavour
    raise LabError(f"no host of flavour {name}; there are {', '.join(each.name for each in FLAVOURS)}")
