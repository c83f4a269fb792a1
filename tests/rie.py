"""The real Lambda runtime on this machine: AWS's emulator with AWS's Python runtime client.

`python -m tests.rie` fetches the emulator, which AWS ships inside the wheel of aws-sam-cli.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tests.servers import DUMMY_AWS, REGION, CannotStart, accepts, free_port, request, serving

ROOT = Path(__file__).resolve().parent.parent
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


class LambdaSandbox:
    """One execution environment of a function, as Lambda runs it: a context manager.

    `handler` is "module.function" in the folder `task_root`. After `timeout` seconds an invocation
    is killed with SIGKILL, and the next one starts cold. The emulator dies of two invocations at
    once: make one sandbox for each that should overlap.
    """

    def __init__(
        self, handler: str, env: dict[str, str] | None = None, timeout: int = 3, *, task_root: Path
    ) -> None:
        self._timeout = timeout
        self._port, api_port = free_port(), free_port()
        self._command = [
            str(emulator()),
            *("--runtime-interface-emulator-address", f"127.0.0.1:{self._port}"),
            *("--runtime-api-address", f"127.0.0.1:{api_port}"),
            *(sys.executable, "-m", "awslambdaric", handler),
        ]
        self._env = {
            **os.environ,
            **DUMMY_AWS,
            "AWS_REGION": REGION,
            "AWS_LAMBDA_FUNCTION_NAME": "sandbox",
            "AWS_LAMBDA_FUNCTION_TIMEOUT": str(timeout),
            "LAMBDA_TASK_ROOT": str(task_root),
            "PYTHONPATH": f"{task_root}{os.pathsep}{ROOT}",
            "_HANDLER": handler,
            **(env or {}),
        }
        self._stack = ExitStack()

    def __enter__(self) -> LambdaSandbox:
        self._server = self._stack.enter_context(
            serving(self._command, self._env, lambda: accepts(self._port))
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def invoke(self, event: object) -> str:
        """The text of the answer: JSON of the result or the error, or "... Task timed out ..."."""
        url = f"http://127.0.0.1:{self._port}/2015-03-31/functions/function/invocations"
        return request("POST", url, event, timeout=self._timeout + 30)

    def output(self) -> str:
        """What the function and the emulator printed so far."""
        return self._server.output()

    def kill(self) -> None:
        """End the emulator and the function at once, as a crash of the host would."""
        self._server.kill()


def emulator() -> Path:
    """Where the emulator is; raises CannotStart, naming the cure, if it was never fetched."""
    path = _emulator_path()
    if not path.exists():
        raise CannotStart(f"{path} is missing: fetch it with `python -m tests.rie`")
    return path


def fetch() -> Path:
    """Fetch the emulator once; raises CannotStart if it cannot be had."""
    path = _emulator_path()
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(prefix="idemguard-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", folder, f"aws-sam-cli=={_version()}"]
        if subprocess.run(command, check=False).returncode != 0:
            raise CannotStart(
                f"pip could not download aws-sam-cli {_version()}, whose wheel holds the Lambda "
                "emulator that the tests need: see pip's message above"
            )
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(f"samcli/local/rapid/{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    # In one step, so that a broken-off download never looks like an emulator.
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    partial.chmod(0o755)
    return partial.replace(path)


def _emulator_path() -> Path:
    machine = _MACHINES.get(platform.machine().lower())
    if sys.platform != "linux" or machine is None:
        raise CannotStart(
            "the Lambda emulator runs on Linux (x86-64 or ARM) only; this is "
            f"{sys.platform} on {platform.machine()}: run the tests in a Linux container"
        )
    return ROOT / ".cache" / f"aws-sam-cli-{_version()}" / f"aws-lambda-rie-{machine}"


def _version() -> str:
    pinned = re.search(r"^aws-sam-cli==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    if pinned is None:
        raise CannotStart(
            "constraints.txt pins no aws-sam-cli: add the line `aws-sam-cli==VERSION`"
        )
    return pinned[1]


if __name__ == "__main__":
    try:
        print(f"Lambda emulator: {fetch().relative_to(ROOT)}")
    except CannotStart as error:
        sys.exit(f"error: {error}")
