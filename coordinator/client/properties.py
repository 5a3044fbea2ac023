r"""A client properties file: what Kafka's tools take with `--command-config`, read and checked.

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kafka/ca.pem

The file has Java's properties format, in Latin-1 with escapes (`\u00e4`), as Kafka's tools read it. Stores of TLS are
read by coordinator.client.security.

House rule: an error names the key and the file, and shows no secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from coordinator.config import SECURITY_PROTOCOLS, ListenerConfig, parse_properties, settings

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

PROTOCOL, MECHANISM, JAAS = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - a name
IDENTIFICATION = "ssl.endpoint.identification.algorithm"
CLIENT_ID, REQUEST_TIMEOUT = "client.id", "request.timeout.ms"

OF_SERVERS = frozenset({"ssl.client.auth", "ssl.principal.mapping.rules"})
TLS = frozenset(name for name in settings() if name.startswith("ssl.")) - OF_SERVERS
"""The keys that client and server share; their values are those of `ListenerConfig`."""

LOCATIONS = ("ssl.keystore.location", "ssl.truststore.location")
NAMES = TLS | {PROTOCOL, MECHANISM, JAAS, TOKEN_URL, IDENTIFICATION, CLIENT_ID, REQUEST_TIMEOUT}
"""All keys that have a meaning here."""

OF_JAVA = frozenset({"sasl.login.callback.handler.class"})
"""Keys that mean something to Kafka's own clients only, to which Spark's belong."""

SILENT = OF_JAVA | {"bootstrap.servers"}
"""Keys that need no warning. The bootstrap server is an option of each command."""


class PropertiesError(ValueError):
    """The file can't be read, or a value in it is wrong; the text names file and key."""


@dataclass(frozen=True)
class Properties:
    """The settings of a file. Without a file: a client without security.

    name: of the file. texts: what the file says for the keys of NAMES and OF_JAVA. ignored: its other keys.
    """

    name: str = ""
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    jaas: str = field(default="", repr=False)
    token_url: str = ""
    checks_host: bool = True
    tls: ListenerConfig = field(default=ListenerConfig(), repr=False)
    client_id: str | None = None
    timeout_s: float | None = None
    texts: dict[str, str] = field(default_factory=dict, repr=False)
    ignored: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """A line about the ignored keys; "" if there are none."""
        if not self.ignored:
            return ""
        said = []
        for key in self.ignored:
            close = get_close_matches(key, NAMES, n=1, cutoff=0.9)
            said.append(f"{key} (perhaps {close[0]}?)" if close else key)
        return f"{self.name}: not used here: {', '.join(said)}"

    def wrong(self, key: str, problem: object) -> PropertiesError:
        """The error for a wrong value of a key."""
        return PropertiesError(f"{self.name}: {key}: {problem}")


def read_file(path: Path) -> Properties:
    """Read and check a file. Raises PropertiesError."""
    try:
        text = path.read_text(encoding="latin-1")
    except OSError as error:
        raise PropertiesError(f"{path}: {error.strerror or error}") from None
    return read(text, str(path))


def read(text: str, name: str) -> Properties:
    """Check the text of a file of that name. Raises PropertiesError."""
    given = {key: value.strip() for key, value in parse_properties(text).items()}
    texts = {key: value for key, value in given.items() if key in NAMES | OF_JAVA}
    ignored = tuple(sorted(given.keys() - NAMES - SILENT))
    found = Properties(name, texts=texts, ignored=ignored)
    protocol = _one_of(found, PROTOCOL, texts.get(PROTOCOL, "PLAINTEXT").upper(), SECURITY_PROTOCOLS)
    mechanism = texts.get(MECHANISM, "GSSAPI") if protocol.startswith("SASL_") else ""
    if mechanism:
        _one_of(found, MECHANISM, mechanism, MECHANISMS)
    identification = texts.get(IDENTIFICATION, "https").lower()
    return replace(
        found,
        protocol=protocol,
        mechanism=mechanism,
        jaas=texts.get(JAAS, ""),
        token_url=texts.get(TOKEN_URL, ""),
        checks_host=_one_of(found, IDENTIFICATION, identification, ("https", "")) == "https",
        tls=_tls(found),
        client_id=texts.get(CLIENT_ID) or None,
        timeout_s=_timeout_s(found),
    )


def _one_of(properties: Properties, key: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        known = ", ".join(choice or "nothing" for choice in choices)
        raise properties.wrong(key, f"{value!r} is none of {known}")
    return value


def _tls(properties: Properties) -> ListenerConfig:
    values = {}
    for key in TLS & properties.texts.keys():
        setting = settings()[key]
        try:
            values[setting.attribute] = setting.read(properties.texts[key])
        except ValueError as error:
            raise properties.wrong(key, error) from None
    return ListenerConfig(**values)


def _timeout_s(properties: Properties) -> float | None:
    text = properties.texts.get(REQUEST_TIMEOUT)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text)):
        raise properties.wrong(REQUEST_TIMEOUT, f"{text!r} is not a number of ms")
    return int(text) / 1000
