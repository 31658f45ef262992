"""The errors of the lab."""


class LabError(Exception):
    """The machine lacks something that the lab needs; the message says what to install or to change."""


class LabNodeError(LabError):
    """A lab node did not start, stop or join within its limit; the end of its log is in the message."""
