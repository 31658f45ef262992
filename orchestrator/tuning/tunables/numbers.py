"""Whole numbers in profiles and in files of hosts.

Python accepts more digits than a kernel does (`²`, `٣`), and fails on a number of thousands of digits. In
/proc/sys a number that begins with 0 is octal: the kernel reads `010` as 8 (`proc_get_long`).
"""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile("0|[1-9][0-9]{0,19}")
"""No kernel value is longer: 2**64 has 20 digits."""


def is_number(text: str) -> bool:
    """Whether a text is exactly a whole number, without a sign or leading zeros, that a kernel can hold."""
    return _NUMBER.fullmatch(text) is not None
