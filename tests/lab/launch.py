"""How a lab node's JVM is started: the command line and, from version 8 on, the server's first input.

The archives' own start scripts run one or two more JVMs before the server's (option parsers, the command-line
launcher), which on a small machine costs more than the server itself. So the lab runs the server's main
class as those scripts would, with options for a quick start instead of a quick server. Measured for three
9.1 nodes on two cores: 49 s by the script, 11 s by this.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path

from tests.lab.distributions import Distribution, Product

FIRST_WITH_SERVER_ARGUMENTS = 8
"""From 8.0 on, Elasticsearch reads its settings from standard input, where its launcher writes them."""
_FIRST_WITH_AGENT = 3
"""From 3.0 on, OpenSearch is started with a Java agent."""
KEYSTORE_FORMAT = 7
"""Format of an in-memory keystore on the wire, 8.19 to 9.1 (KeyStoreWrapper.CURRENT_VERSION)."""

QUICK_START = (
    "-XX:TieredStopAtLevel=1",  # the optimising compiler never pays in a node that lives for minutes
    "-XX:+UseSerialGC",  # no collector threads to start; the heap is small
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",  # a tenth of the boot; Maven's checksums cover the archives
)
_COMMON = (
    "-Xss1m",
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
    "-Djna.nosys=true",
    "-XX:-OmitStackTraceInFastThrow",
    "-Dio.netty.noUnsafe=true",
    "-Dio.netty.noKeySetOptimization=true",
    "-Dio.netty.recycler.maxCapacityPerThread=0",
    "-Dlog4j.shutdownHookEnabled=false",
    "-Dlog4j2.disable.jmx=true",
    "-Dlog4j2.formatMsgNoLookups=true",
    "-XX:+ExitOnOutOfMemoryError",
)
_LUCENE_OPENINGS = (
    "org.apache.lucene.core/org.apache.lucene.codecs.lucene99",
    *(
        f"org.apache.lucene.backward_codecs/org.apache.lucene.backward_codecs.lucene{n}"
        for n in (90, 91, 92, 94, 95)
    ),
)
"""The packages that 9.1's launcher opens to the server (its vector code uses reflection on Lucene)."""
_BRIDGE_READERS = ("org.elasticsearch.entitlement", "java.logging", "java.net.http", "java.naming", "jdk.net")
_OPENSEARCH_THREADS = "org.opensearch.secure_sm.SecuredForkJoinWorkerThreadFactory"


def java_command(
    distribution: Distribution, *, home: Path, java: Path, folder: Path, heap_mb: int
) -> tuple[str, ...]:
    """The command line of a node's server."""
    memory = (f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", f"-XX:MaxDirectMemorySize={heap_mb // 2}m")
    head = (
        str(java / "bin" / "java"),
        *_COMMON,
        *QUICK_START,
        *memory,
        f"-Djava.io.tmpdir={folder / 'tmp'}",
    )
    if distribution.product is Product.ELASTICSEARCH and distribution.major >= FIRST_WITH_SERVER_ARGUMENTS:
        return (*head, *_modular(distribution, home))
    if distribution.before(6):
        return (*head, *_before_six(distribution, home, folder))
    return (*head, *_by_class_path(distribution, home, folder))


def _modular(distribution: Distribution, home: Path) -> tuple[str, ...]:
    bridge = (
        home / "lib" / "entitlement-bridge" / f"elasticsearch-entitlement-bridge-{distribution.version}.jar"
    )
    openings = _LUCENE_OPENINGS if distribution.major >= 9 else ()
    return (
        "-Djava.locale.providers=CLDR",
        f"-Des.path.home={home}",
        "-Des.distribution.type=zip",
        "-Des.java.type=ES_JAVA_HOME",
        "--enable-native-access=org.elasticsearch.nativeaccess,org.apache.lucene.core",
        "--enable-native-access=ALL-UNNAMED",
        *(f"--add-opens={opened}=org.elasticsearch.server" for opened in openings),
        "-Des.entitlements.enabled=true",
        "-XX:+EnableDynamicAgentLoading",
        "-Djdk.attach.allowAttachSelf=true",
        f"--patch-module=java.base={bridge}",
        f"--add-exports=java.base/org.elasticsearch.entitlement.bridge={','.join(_BRIDGE_READERS)}",
        "--module-path",
        str(home / "lib"),
        "--add-modules=jdk.net",
        "--add-modules=jdk.management.agent",
        "--add-modules=ALL-MODULE-PATH",
        "-m",
        "org.elasticsearch.server/org.elasticsearch.bootstrap.Elasticsearch",
    )


def _before_six(distribution: Distribution, home: Path, folder: Path) -> tuple[str, ...]:
    """The start scripts' line without the collector's flags, which later releases of Java refuse."""
    config = str(folder / "config")
    spelled = "ElasticSearch" if distribution.before(1) else "Elasticsearch"
    main = f"org.elasticsearch.bootstrap.{spelled}"
    paths = (f"-Des.path.home={home}", "-cp", f"{home}/lib/*")
    if distribution.before(2):
        return (f"-Des.path.conf={config}", "-Des.foreground=yes", *paths, main)
    if distribution.before(5):
        return (f"-Des.path.conf={config}", *paths, main, "start")
    return (*paths, main, f"-Epath.conf={config}")


def _by_class_path(distribution: Distribution, home: Path, folder: Path) -> tuple[str, ...]:
    prefix, main, more = {
        Product.ELASTICSEARCH: ("es", "org.elasticsearch.bootstrap.Elasticsearch", ()),
        Product.OPENSEARCH: (
            "opensearch",
            "org.opensearch.bootstrap.OpenSearch",
            (f"-Djava.util.concurrent.ForkJoinPool.common.threadFactory={_OPENSEARCH_THREADS}",),
        ),
    }[distribution.product]
    guard = (
        # OpenSearch 3 has a guard of its own, in place of Java's security manager.
        (f"-javaagent:{home / 'agent' / 'opensearch-agent.jar'}", "--add-modules=jdk.incubator.vector")
        if distribution.product is Product.OPENSEARCH and distribution.major >= _FIRST_WITH_AGENT
        else ("-Djava.locale.providers=SPI,COMPAT", "-Djava.security.manager=allow")
    )
    return (
        *guard,
        *more,
        f"-D{prefix}.path.home={home}",
        f"-D{prefix}.path.conf={folder / 'config'}",
        f"-D{prefix}.distribution.flavor=default",
        f"-D{prefix}.distribution.type=zip",
        f"-D{prefix}.bundled_jdk=false",
        "-cp",
        f"{home}/lib/*",
        main,
    )


def standard_input(
    distribution: Distribution, *, home: Path, folder: Path, settings: Mapping[str, str]
) -> bytes:
    """The server's input before it boots: none before version 8, then the launcher's `ServerArgs`.

    The layout was read from the output of the launchers of 8.19.0 and 9.1.0, which send the same: daemonize,
    quiet, pid file, an in-memory keystore with its seed, all settings, the configuration and log folders.
    An empty text for `node.roles` would mean all roles (seen on 9.1.0).
    """
    if distribution.product is not Product.ELASTICSEARCH or distribution.major < FIRST_WITH_SERVER_ARGUMENTS:
        return b""
    # The seed only has to stay the same from one start of a node to the next.
    seed = hashlib.sha256(str(folder).encode()).hexdigest()[:20].encode()
    keystore = (
        _text("org.elasticsearch.common.settings.KeyStoreWrapper")
        + struct.pack(">i", KEYSTORE_FORMAT)
        + b"\x00"  # no password
        + b"\x00"  # no encrypted bytes: it is open
        + b"\x01"  # one entry
        + _text("keystore.seed")
        + _sized(seed)
        + _sized(hashlib.sha256(seed).digest())
        + b"\x00"  # not closed
    )
    everything = {**settings, "path.home": str(home)}
    listed = b"".join(_text(key) + _value(value) for key, value in sorted(everything.items()))
    return (
        b"\x01"  # daemonize: or the server ends with its standard input
        b"\x00"  # not quiet
        b"\x00"  # no pid file: nodectl writes one before there is a JVM
        + keystore
        + _number(len(everything))
        + listed
        + _text(str(folder / "config"))
        + _text(str(folder / "logs"))
    )


def _value(value: str) -> bytes:
    """A generic value: its kind and its content. An empty value is an empty list, as in the configuration."""
    return b"\x00" + _text(value) if value else b"\x07" + _number(0)


def _number(value: int) -> bytes:
    """A variable-length integer: seven bits a byte, the lowest first."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def _sized(value: bytes) -> bytes:
    return _number(len(value)) + value


def _text(value: str) -> bytes:
    # The length counts UTF-16 units and the bytes are close to UTF-8; for ASCII both are plain.
    return _number(len(value)) + value.encode("ascii")
