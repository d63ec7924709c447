"""A real server, started by the real command."""

import http.client
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCENARIO = """\
[model]
name = "cnn"
input = "1x8x8"
classes = 10

[server]
compute = "20 GFLOPS"

[session]
steps = 4
batch_size = 16

[data]
source = "digits"
partition = "iid"

[train]
rounds = 3
lr = 0.05
seed = 7

[[client]]
name = "c1"
compute = "0.05 GFLOPS"
rate = "1 MB/s"
samples = 80

[[client]]
name = "c2"
compute = "0.2 GFLOPS"
up = "0.5 MB/s"
down = "2 MB/s"
samples = 90
min_cut = 2

[[client]]
name = "c3"
compute = "4 GFLOPS"
rate = "4 MB/s"
samples = 100

[[client]]
name = "c4"
compute = "0.02 GFLOPS"
rate = "2 MB/s"
samples = 60
"""


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    url: str
    folder: Path

    @property
    def port(self) -> int:
        return int(re.search(r":(\d+)/", self.url)[1])

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        found = answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.ask("GET", path, headers={key.replace("_", "-"): value for key, value in headers.items()})

    def post(self, path: str, body: Any) -> tuple[int, dict[str, str], bytes]:
        return self.ask("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})


def start(folder: Path, *arguments: str) -> Iterator[Running]:
    code = "from cutwater.cli.main import main; main()"
    command = [sys.executable, "-c", code, "web", *arguments, "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stdout.read()
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield Running(found[0], folder)
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
