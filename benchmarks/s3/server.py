"""A private SeaweedFS as it is packaged, in the scratch directory; a prefix for each contender, and its requests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

BUCKET = "benchmarks"
START_SECONDS = 60


class Server:
    """Gives each directory of a contender a prefix of the same name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.requests: Counter[str] = Counter()
        self.ports = [_free_port() for _ in range(8)]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    def bucket(self, directory: Path) -> Any:
        """What belongs to a directory, as obstore's object; every request to it is counted."""
        prefix = "-".join(directory.parts[-2:]).replace(" ", "-")
        return _counting(self.requests)(
            BUCKET,
            prefix=prefix,
            endpoint=self.endpoint,
            access_key_id="key",
            secret_access_key="secret",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    def stored_bytes(self, directory: Path) -> int:
        """The sizes of all objects below the contender's prefix."""
        from obstore import list as list_all

        return sum(each["size"] for page in list_all(self.bucket(directory), chunk_size=1000) for each in page)

    @contextmanager
    def running(self) -> Iterator[Server]:
        self.directory.mkdir(parents=True)
        s3, master, volume, filer, *calls = self.ports
        ports = {"s3": s3, "master": master, "volume": volume, "filer": filer}
        command = [str(Path(sys.executable).parent / "weed"), "server", f"-dir={self.directory}", "-filer", "-s3"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=50"]
        command += [f"-{part}.port={port}" for part, port in ports.items()]
        command += [f"-{part}.port.grpc={port}" for part, port in zip(ports, calls, strict=True)]
        settings = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        with (self.directory / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | settings)
        try:
            self._wait()
            yield self
        finally:
            process.kill()
            process.wait()

    def _wait(self) -> None:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
            config=Config(retries={"max_attempts": 1}),
        )
        ends_at = time.monotonic() + START_SECONDS
        while time.monotonic() < ends_at:
            with suppress(BotoCoreError, ClientError):
                client.create_bucket(Bucket=BUCKET)
                client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
                return
            time.sleep(0.1)
        raise TimeoutError("SeaweedFS did not start")


def _counting(requests: Counter[str]) -> Any:
    from obstore.store import S3Store

    class Counting(S3Store):
        def get(self, *arguments: Any, **options: Any) -> Any:
            requests["get"] += 1
            return super().get(*arguments, **options)

        def put(self, *arguments: Any, **options: Any) -> Any:
            requests["put"] += 1
            return super().put(*arguments, **options)

        def list(self, *arguments: Any, **options: Any) -> Any:
            requests["list"] += 1
            return super().list(*arguments, **options)

        def delete(self, *arguments: Any, **options: Any) -> Any:
            requests["delete"] += 1
            return super().delete(*arguments, **options)

    return Counting


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
