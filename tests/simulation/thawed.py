"""Makes frozen values quick to make, for processes that live runs by the thousand.

The constructor of a frozen dataclass sets each field by a call, which takes twice as long as an assignment: a
tenth of a run. Here the constructors assign, and nothing refuses a change. Tests run with frozen values.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, Field, field, fields, make_dataclass
from inspect import isclass


def thaw() -> None:
    """Thaw every frozen dataclass of the program that is imported, in this process."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("orchestrator.")]
    every = {value for module in modules for value in vars(module).values() if isclass(value)}
    for kind in every:
        own = vars(kind).get("__dataclass_params__")  # a subclass that is none itself has only its base's
        if own is not None and own.frozen:
            _thaw(kind)


def _thaw(kind: type) -> None:
    given = [(each.name, each.type, _again(each)) for each in fields(kind)]
    after = {"__post_init__": None} if hasattr(kind, "__post_init__") else {}
    plain = make_dataclass(kind.__name__, given, namespace=after)
    kind.__init__ = plain.__init__
    del kind.__setattr__, kind.__delattr__


def _again(of: Field[object]) -> Field[object]:
    default = {"default": of.default} if of.default is not MISSING else {}
    factory = {"default_factory": of.default_factory} if of.default_factory is not MISSING else {}
    return field(init=of.init, kw_only=of.kw_only, **default, **factory)
