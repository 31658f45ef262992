"""Merging indices after a bulk load, before the first wave: a state machine of its own in the same loop."""

from orchestrator.merging.merging import decide

__all__ = ["decide"]
