"""The same engine in a process of its own, on GPUs of its own: `engine.mode=server`.

Parent and child talk over a socket pair; weights come through a file in shared memory. A child
whose parent is gone reads end-of-file and ends, so nothing is left running, whoever was killed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from grpo_ablate.engines._vllm_core import Core, Settings
from grpo_ablate.types import Completions


class Server:
    """A `Core` in a child process."""

    def __init__(self, settings: Settings, devices: str | None) -> None:
        """Start the child and wait until its engine is up.

        Args:
            settings: of the engine.
            devices: the child's CUDA_VISIBLE_DEVICES; None leaves it the parent's.

        Raises:
            RuntimeError: it did not start, and why.
        """
        ours, theirs = socket.socketpair()
        environment = dict(os.environ)
        if devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = devices
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a terminal's Ctrl-C is the parent's to handle
            )
        self._connection = Connection(ours.detach())
        self._call("start", settings)

    @property
    def pid(self) -> int:
        """Return the child's process id."""
        return self._child.pid

    def generate(
        self, prompt_ids: Sequence[Sequence[int]], n: int, temperature: float, seeds: Sequence[int]
    ) -> Completions:
        """Sample; see `Engine.generate`."""
        found: Completions = self._call("generate", prompt_ids, n, temperature, seeds)
        return found

    def load_file(self, path: str) -> None:
        """Take weights from a safetensors file."""
        self._call("load_file", path)

    def sleep(self) -> None:
        """Give the engine's memory back until the next load."""
        self._call("sleep")

    def close(self) -> None:
        """End the child, and wait until it is gone."""
        self._connection.close()
        try:
            self._child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            self._connection.send((method, arguments))
            failed, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            code = self._child.wait(timeout=30)
            raise RuntimeError(f"the vLLM process ended with exit code {code}") from error
        if failed:
            raise RuntimeError(f"the vLLM process failed in {method}:\n{answer}")
        return answer


def serve(connection: Connection) -> None:
    """Answer one parent until it hangs up."""
    core: Core | None = None
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            break
        try:
            if method == "start":
                core, answer = Core(*arguments), None
            else:
                answer = getattr(core, method)(*arguments)
            connection.send((False, answer))
        except Exception:  # told to the parent, which decides
            connection.send((True, traceback.format_exc()))
    if core is not None:
        core.close()


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
