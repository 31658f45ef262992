"""The short way of the `riak` command: hand the words to the node that runs here, print what it answers.

A rolling restart asks some hundreds of times, and importing what Python has for sockets, paths and JSON takes
longer than the question. So only what is built in is imported here. A command that is not the node's to
answer, and one that the node does not answer, goes the long way: `program.py`.

The question is one line, `short` and the words with a zero byte between them. The answer begins with a
line that has the exit code, 1 or 2 for where the text goes, the real seconds that the command takes, and how
many bytes of text follow.
"""

from __future__ import annotations

import _socket
import os
import sys
import time

from .pairs import read_pairs

PORT = "8199"
"""Where nodes are asked unless `double.conf` says otherwise."""
EVERYWHERE = "0.0.0.0"  # noqa: S104  (what a node may be bound to; it is asked on loopback then)
LONGEST_SECONDS = 30.0
"""A node that takes longer does not answer."""
UNRECORDED = 99
"""The double's own exit code: the recordings do not say what Riak would do."""
CHUNK_BYTES = 65536
OF_THE_NODE = frozenset({"admin", "ping", "pid", "rpc"})
"""First words of what the node answers; the program does the rest by itself."""


def unrecorded(words: str) -> str:
    """What is said of a command that the recordings do not have."""
    return f"riak-double: there is no answer to: {words}\n"


def short() -> int | None:
    """The exit code, or None where this way leads nowhere: nothing has been printed then."""
    began = time.monotonic()
    program, words = os.path.basename(sys.argv[0]), sys.argv[1:]  # noqa: PTH119  (pathlib is slow to import)
    of_the_node = program == "riak" and words[:1] != [] and words[0] in OF_THE_NODE
    of_the_node = of_the_node and words[:2] != ["admin", "wait-for-service"]
    if not of_the_node or any(mark in word for word in words for mark in "\0\n"):
        return None
    answer = _ask("\0".join(["short", *words]).encode(errors="surrogateescape") + b"\n")
    if answer is None:
        return None
    head, whole, text = answer.partition(b"\n")
    code, stream, seconds, size = head.split() if whole else (b"", b"", b"", b"-1")
    if len(text) != int(size):  # the node ended in the middle of it
        return None
    out = sys.stdout if stream == b"1" else sys.stderr
    out.buffer.write(text)
    out.flush()
    time.sleep(max(0.0, float(seconds) - (time.monotonic() - began)))
    return int(code)


def exit_code(code: int) -> int:
    """With which code the command ends: the packaged one hides its own, but for what only a double says."""
    if code == UNRECORDED or os.path.basename(sys.argv[0]) == "riak-double":  # noqa: PTH119  (as above)
        return code
    return 0 if _own().get("command") == "packaged" else code


def _own() -> dict[str, str]:
    return read_pairs(os.environ.get("RIAK_DOUBLE_HOME", "/etc/riak-double") + "/double.conf")


def _ask(question: bytes) -> bytes | None:
    """A whole answer, or None."""
    own = _own()
    host = own.get("bind", EVERYWHERE)
    link = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    answer = b""
    try:
        link.settimeout(LONGEST_SECONDS)
        link.connect(("127.0.0.1" if host == EVERYWHERE else host, int(own.get("port", PORT))))
        link.sendall(question)
        while part := link.recv(CHUNK_BYTES):
            answer += part
    except OSError:  # nobody there, or it ended while it answered
        return None
    finally:
        link.close()
    return answer or None
