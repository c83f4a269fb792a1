"""Local servers for tests: a stand-in for AWS, and a proxy that breaks calls on purpose."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

REGION = "eu-west-1"

#: Enough for a client to sign calls, and nothing that could reach a real account.
DUMMY_AWS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}

_START_SECONDS = 60.0


class CannotStart(RuntimeError):
    """A local server did not come up; the text ends with what it printed."""


class Server:
    """A running child process in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def output(self) -> str:
        """What it printed so far."""
        return self._log.read_text(errors="replace")

    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL for the process and all its children, as a crash would."""
        # First the parent, which would start a dead child anew; and by session, because the Lambda
        # emulator puts its child into a process group of its own.
        self._process.kill()
        for pid in _members(session=self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


def _members(session: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(entry.name)) == session:
                yield int(entry.name)


@contextlib.contextmanager
def serving(
    command: Sequence[str], env: Mapping[str, str], ready: Callable[[], bool]
) -> Iterator[Server]:
    """Run `command` with exactly `env` until the block ends.

    Raises CannotStart if the process ends, or `ready` stays false for a minute.
    """
    with tempfile.TemporaryDirectory(prefix="idemguard-") as folder:
        log = Path(folder, "output.log")
        with log.open("wb") as sink:
            process = subprocess.Popen(
                list(command),
                env=dict(env),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        server = Server(process, log)
        try:
            _wait(server, ready, Path(command[0]).name)
            yield server
        finally:
            server.kill()


def _wait(server: Server, ready: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not ready():
        if not server.running():
            raise CannotStart(f"{name} ended before it was ready:\n{server.output()}")
        if time.monotonic() > deadline:
            raise CannotStart(f"{name} not ready in {_START_SECONDS:.0f} s:\n{server.output()}")
        time.sleep(0.05)


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Whether something on 127.0.0.1 accepts connections on `port`."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def tool(name: str) -> str:
    """The path of a command installed beside the running Python."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise CannotStart(f"{path} is not installed: run `make test`, which sets up .venv")
    return str(path)


def request(method: str, url: str, body: object = None, timeout: float = 10.0) -> str:
    """The text of an HTTP answer, whatever its status; `body` is sent as JSON."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, parts.path, text, {"Content-Type": "application/json"})
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def ssm_client_for(url: str, **config: Any) -> Any:
    """A boto3 SSM client for `url`; see `client_for`."""
    return client_for("ssm", url, **config)


def client_for(service: str, url: str, **config: Any) -> Any:
    """A boto3 client for `url`, with dummy credentials and timeouts of a few seconds.

    `config` goes to botocore's Config: `retries={"total_max_attempts": 1}` shows each failure.
    """
    import boto3
    from botocore.config import Config

    session = boto3.Session(
        aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION
    )
    return session.client(
        service,
        endpoint_url=url,
        config=Config(**{"connect_timeout": 2, "read_timeout": 5, **config}),
    )


@contextlib.contextmanager
def ministack(service: str = "ssm") -> Iterator[str]:
    """The address of a local stand-in for SSM, or for DynamoDB, that holds nothing yet."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {
        **os.environ,
        **DUMMY_AWS,
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "SERVICES": service,
    }
    with serving([tool("ministack")], env, lambda: _answers(service, url)):
        yield url


def _answers(service: str, url: str) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    if not accepts(urlsplit(url).port or 0):
        return False
    client = client_for(service, url, retries={"total_max_attempts": 1})
    try:
        if service == "ssm":
            client.get_parameters(Names=["/ready"])
        else:
            client.list_tables()
    except (BotoCoreError, ClientError):
        return False
    finally:
        client.close()
    return True


@contextlib.contextmanager
def microburst(
    target_url: str, rules: Sequence[Mapping[str, Any]], *, port: int | None = None
) -> Iterator[str]:
    """The address of a proxy in front of `target_url` that breaks the calls `rules` name.

    A rule that applies the first write and loses its answer:
    `{"service": "ssm", "operation": "PutParameter", "times": 1, "response": {"abort_bytes": 0}}`.
    The proxy's own interface stands under `/_microburst/` at the same address.
    """
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        # JSON is YAML too.
        json.dump({"rules": list(rules)}, config)
        config.flush()
        command = [tool("microburst"), "--upstream", target_url, "--port", str(port)]
        command += ["--no-resign", "--config", config.name]
        with serving(command, {**os.environ, **DUMMY_AWS}, lambda: accepts(port)):
            yield url


@pytest.fixture(scope="session")
def ministack_url() -> Iterator[str]:
    """One ministack for the whole run: tests keep to names of their own."""
    with ministack() as url:
        yield url
