"""`tenure users`: the SCRAM users of a running server, or of a data folder that no server works with.

Somebody has to be the first who may log in. So without `--bootstrap-server` these commands write into the data folder
itself, before a server runs or while it is stopped; the folder's lock keeps a server out meanwhile. With it they ask a
server, Tenure or Apache Kafka, as `kafka-configs.sh` does.

House rule: a password comes from a prompt or a file, never as an argument, because all users of a machine see those.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from getpass import getpass
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from coordinator.cli.cluster import CommandConfig, Timeout, cluster
from coordinator.cli.exit_codes import ExitCode, fail, warn
from coordinator.cli.options import Command, OutputForm, argument, commands, option
from coordinator.cli.output import Output, show
from coordinator.client.users import remove_credential, set_credential, users_of
from coordinator.config import Config, ConfigError, load
from coordinator.log.engine import EngineError
from coordinator.log.files import META_NAME
from coordinator.log.segments.disk import reason
from coordinator.log.store import check_folder, lock_folder, read_folder
from coordinator.log.topics.list import CREDENTIALS, TOPICS_NAME, Topic
from coordinator.security.credentials import BASE_36, FORM_OF_KAFKA, MECHANISMS, iterations_of, name_of, text_of
from coordinator.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, credential, prepared, salted

NUMBERS = {name: number for number, name in MECHANISMS.items()}
"""The number of each mechanism on the wire."""

PASSWORD_BYTES_MAX = 1_024
"""The longest password file: a larger one is another file by mistake."""

app = commands("Users that log in by SCRAM: of a running server, or in the data folder of one that doesn't run.")

Server = Annotated[
    str | None,
    option("--bootstrap-server", "HOST:PORT", "A running server, Tenure or Apache Kafka, in place of a data folder."),
]

DataDir = Annotated[
    str | None, option("--data-dir", "DIR", "The server's data folder; only `add` makes one that isn't there.")
]
ConfigFile = Annotated[Path | None, option("--config", "FILE", "The properties file that the server gets.")]
Name = Annotated[str, argument("NAME", "The user's name.")]
Mechanisms = Annotated[
    list[str] | None, option("--mechanism", "NAME", "SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated. Default: both.")
]


def _iterations(text: str | int) -> int:
    """Turn the value of --iterations into an int; typer passes its default too."""
    if re.fullmatch(r"[0-9]{1,9}", str(text)) is None or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise typer.BadParameter(f"{text!r} is not a whole number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


@app.command("add", cls=Command)
def add_command(
    name: Name,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    password_file: Annotated[
        Path | None, option("--password-file", "FILE", "Has the password in its first line. Default: a prompt.")
    ] = None,
    mechanism: Mechanisms = None,
    iterations: Annotated[
        int, option("--iterations", "NUMBER", "How often the password is hashed, by clients too.", _iterations)
    ] = ITERATIONS_MIN,
    bootstrap_server: Server = None,
    command_config: CommandConfig = None,
    timeout: Timeout = None,
) -> None:
    """Add a user, or give one another password."""
    kept_name, mechanisms = _kept(name), _mechanisms(mechanism)
    _check_place(bootstrap_server, command_config, data_dir, config)
    password = _password(password_file)
    made = {each: _salted(each, password, iterations) for each in mechanisms}
    if bootstrap_server is not None:
        with cluster(bootstrap_server, timeout, command_config) as client:
            for each, (salt, salted_password) in made.items():
                set_credential(
                    client, kept_name, NUMBERS[each], salt=salt, salted_password=salted_password, iterations=iterations
                )
    else:
        with _texts(data_dir, config, makes_folder=True) as texts:
            for each, (salt, salted_password) in made.items():
                texts[name_of(each, kept_name)] = text_of(credential(each, salted_password, salt, iterations))
    print(f"{name} can log in by {' and '.join(mechanisms)}")


@app.command("list", cls=Command)
def list_command(
    data_dir: DataDir = None,
    config: ConfigFile = None,
    bootstrap_server: Server = None,
    command_config: CommandConfig = None,
    timeout: Timeout = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """List the users, with mechanisms and iterations."""
    _check_place(bootstrap_server, command_config, data_dir, config)
    if bootstrap_server is not None:
        with cluster(bootstrap_server, timeout, command_config) as client:
            found = users_of(client)
    else:
        with _texts(data_dir, config) as texts:
            found = iterations_of(texts)
    rows = [
        (user, MECHANISMS.get(number, str(number)), iterations)
        for user, mechanisms in found.items()
        for number, iterations in sorted(mechanisms.items())
    ]
    value = [dict(zip(("user", "mechanism", "iterations"), row, strict=True)) for row in rows]
    show(output, value, ("USER", "MECHANISM", "ITERATIONS"), rows)


@app.command("remove", cls=Command)
def remove_command(
    name: Name,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    mechanism: Mechanisms = None,
    bootstrap_server: Server = None,
    command_config: CommandConfig = None,
    timeout: Timeout = None,
) -> None:
    """Remove a user, or one of its mechanisms."""
    kept_name, mechanisms = _kept(name), _mechanisms(mechanism)
    _check_place(bootstrap_server, command_config, data_dir, config)
    if bootstrap_server is not None:
        with cluster(bootstrap_server, timeout, command_config) as client:
            found = [each for each in mechanisms if remove_credential(client, kept_name, NUMBERS[each])]
    else:
        with _texts(data_dir, config) as texts:
            found = [each for each in mechanisms if texts.pop(name_of(each, kept_name), None) is not None]
    if not found:
        fail(ExitCode.NOT_FOUND, f"{name} can't log in by {' or '.join(mechanisms)}")
    print(f"{name} can no longer log in by {' and '.join(found)}")


def _check_place(server: str | None, command_config: Path | None, data_dir: str | None, config: Path | None) -> None:
    """Refuse options of the one place beside those of the other."""
    if server is not None and (data_dir is not None or config is not None):
        fail(ExitCode.USAGE, "--bootstrap-server: a running server has its own folder: leave out --data-dir, --config")
    if server is None and command_config is not None:
        fail(ExitCode.USAGE, "--command-config: it needs --bootstrap-server")


def _salted(mechanism: str, password: str, iterations: int) -> tuple[bytes, bytes]:
    """A fresh salt, and the password that is salted with it."""
    salt = bytes(secrets.choice(BASE_36) for _ in range(FORM_OF_KAFKA.salt_bytes))
    try:
        return salt, salted(mechanism, password, salt, iterations)
    except ValueError as error:
        fail(ExitCode.USAGE, f"the password: {error}")


def _kept(name: str) -> str:
    if not name:
        fail(ExitCode.USAGE, "the name is empty")
    try:
        return prepared(name)
    except ValueError as error:
        fail(ExitCode.USAGE, f"the name {name!r}: {error}")


def _mechanisms(given: list[str] | None) -> list[str]:
    known = list(MECHANISMS.values())
    for each in given or ():
        if each not in known:
            fail(ExitCode.USAGE, f"--mechanism: {each!r} is none of {', '.join(known)}")
    return list(dict.fromkeys(given or known))


def _password(file: Path | None) -> str:
    if file is None:
        password = getpass("Password: ")
        if getpass("Again: ") != password:
            fail(ExitCode.USAGE, "the two passwords differ")
    else:
        try:
            with file.open("rb") as stream:
                content = stream.read(PASSWORD_BYTES_MAX + 1)
            password = content.decode().partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            fail(ExitCode.USAGE, f"--password-file: {file}: {reason(error)}")
        if len(content) > PASSWORD_BYTES_MAX:
            fail(ExitCode.USAGE, f"--password-file: {file} has more than {PASSWORD_BYTES_MAX} bytes")
    if not password:
        fail(ExitCode.USAGE, "the password is empty")
    return password


@contextmanager
def _texts(data_dir: str | None, file: Path | None, *, makes_folder: bool = False) -> Iterator[dict[str, str]]:
    """The credentials' texts of a data folder, under its lock; changes of them are kept at the end."""
    asking = "--bootstrap-server HOST:PORT asks a running server"
    try:
        config = _config(data_dir, file)
        check_folder(config)
        folder = Path(config.log_dirs)
        if not any((folder / name).exists() for name in (META_NAME, TOPICS_NAME)):
            if not makes_folder:
                fail(ExitCode.USAGE, f"log.dirs: {folder} is no data folder of a server; {asking}")
            warn(f"{folder} is a new data folder")
        try:
            unlock = lock_folder(config)
        except ConfigError as error:
            fail(ExitCode.USAGE, f"{error}; {asking}")
        try:
            contents = read_folder(config, uuid4)
            entry = contents.topics.get(CREDENTIALS.name, CREDENTIALS)
            texts = dict(entry.configs)
            yield texts
            if texts != entry.configs:
                changed = Topic(entry.name, entry.topic_id, entry.partition_count, texts)
                contents.topics[entry.name] = changed
                if not texts:
                    del contents.topics[entry.name]
                contents.file.save(contents.topics.values())
        finally:
            unlock()
    except (ConfigError, EngineError, OSError) as error:
        fail(ExitCode.USAGE, reason(error))


def _config(data_dir: str | None, file: Path | None) -> Config:
    """The server's configuration, as far as the folder needs it."""
    flags: Mapping[str, tuple[str, str]] = {} if data_dir is None else {"log.dirs": ("--data-dir", data_dir)}
    properties = "" if file is None else file.read_text(encoding="latin-1")
    return load(flags=flags, environment=os.environ, properties=properties, file_name=str(file or ""))[0]
