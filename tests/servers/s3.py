"""Private S3 servers on loopback: SeaweedFS, which keeps its word and its files; moto; and rclone, which keeps neither.

All of them come from PyPI. Each is a child that ends when the tests end, however they end.
"""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from patience import GIVE_UP_SECONDS
from servers import check_allowed
from servers.disks import limit_files
from servers.ports import free_port

KEY, SECRET, REGION, BUCKET = "tests", "secret-of-the-tests", "us-east-1", "holdfast-tests"
BINARIES = Path(sys.executable).parent

_numbers = count()
_bound_to_us = "setpriv", "--pdeathsig", "KILL"


def set_credentials() -> None:
    """The environment that every S3 store of the tests takes its credentials from."""
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION=REGION)


class S3Server:
    """One server. It can be killed and started again; its port stays the same."""

    ports = 1

    def __init__(self) -> None:
        set_credentials()
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-s3-"))
        self._ports = [free_port() for _ in range(self.ports)]
        self.port = self._ports[0]
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)
        self.start()

    def command(self) -> Iterable[str]:
        raise NotImplementedError

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, prefix: str, port: int | None = None) -> str:
        """What to give to `open`."""
        return f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{port or self.port}"

    def administrator(self) -> Any:
        """A client of another make."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
            config=Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=10),
        )

    def start(self) -> None:
        """Start it, and wait until its bucket can be written to."""
        check_allowed()
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_bound_to_us, *self.command()], stdout=log, stderr=log, cwd=self.directory, restore_signals=False
            )
        ends_at = time.monotonic() + GIVE_UP_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError((self.directory / "log").read_text()[-4000:])
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        client = self.administrator()
        try:
            with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
        except (BotoCoreError, ClientError):
            return False
        return True

    def kill(self) -> None:
        """SIGKILL, as if the machine had failed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def limit_files(self, size: int | None) -> None:
        """Let no file grow beyond `size` bytes, as if the disk were full; None for no limit."""
        assert self._process is not None
        limit_files(self._process.pid, size)

    def remove(self) -> None:
        """Stop it and remove what it kept."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.remove)

    # What a prefix holds, as an administrator sees it

    def names(self, prefix: str) -> list[str]:
        """The name of every object below a prefix."""
        pages = self.administrator().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]

    def objects(self, prefix: str) -> dict[str, bytes]:
        """Every object below a prefix."""
        client = self.administrator()
        return {name: client.get_object(Bucket=BUCKET, Key=name)["Body"].read() for name in self.names(prefix)}

    def write(self, name: str, data: bytes) -> None:
        """Overwrite an object, whatever it holds."""
        self.administrator().put_object(Bucket=BUCKET, Key=name, Body=data)


class SeaweedServer(S3Server):
    """SeaweedFS: atomic conditions, files on disk."""

    ports = 8

    def command(self) -> Iterable[str]:
        """All its parts in one process."""
        s3, master, volume, filer, *calls = self._ports
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": KEY, "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": actions}
        settings = self.directory / "s3.json"
        settings.write_text(json.dumps({"identities": [identity]}))
        ports = {"s3": s3, "master": master, "volume": volume, "filer": filer}
        yield from (str(BINARIES / "weed"), "-logtostderr=true", "server", f"-dir={self.directory}", "-filer", "-s3")
        yield from ("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.config={settings}")
        yield from (f"-{part}.port={port}" for part, port in ports.items())
        yield from (f"-{part}.port.grpc={port}" for part, port in zip(ports, calls, strict=True))
        yield from ("-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=20", "-master.volumeSizeLimitMB=64")
        yield from ("-master.electionTimeout=1s", "-master.heartbeatInterval=100ms")


class MotoServer(S3Server):
    """moto: in memory, in Python."""

    def command(self) -> Iterable[str]:
        return str(BINARIES / "moto_server"), "-H", "127.0.0.1", "-p", str(self.port)


class RcloneServer(S3Server):
    """rclone: takes every put, whatever its condition."""

    def command(self) -> Iterable[str]:
        (self.directory / "served" / BUCKET).mkdir(parents=True, exist_ok=True)
        yield from (str(BINARIES / "rclone"), "serve", "s3", "--auth-key", f"{KEY},{SECRET}")
        yield from ("--addr", f"127.0.0.1:{self.port}", str(self.directory / "served"))


_shared: dict[type[S3Server], S3Server] = {}


def shared(kind: type[S3Server]) -> S3Server:
    """The server of that kind of this test process; each test takes a prefix of its own."""
    if kind not in _shared:
        _shared[kind] = kind()
    return _shared[kind]


def new_prefix() -> str:
    """A prefix that no other test has."""
    return f"t{os.getpid()}-{next(_numbers)}"
