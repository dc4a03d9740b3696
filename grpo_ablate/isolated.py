"""Calls of functions that may hang, crash or eat the memory, in a process that can be killed."""

from __future__ import annotations

import contextlib
import importlib
import resource
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

_MEMORY = 4 * 2**30
_START = 60.0
"""Seconds for a child to import what it needs."""


class IsolatedError(RuntimeError):
    """The function raised, hung or took its process down."""


class Isolated:
    """A function by name, called in a child process that is replaced whenever it is too slow.

    Neither a signal nor a thread can end a C function that never returns; killing a process can.
    Children are forked from a server that has imported the function's module once.
    """

    def __init__(self, function: str, limit: float = 1.0) -> None:
        """Remember the function; the first call starts the child.

        Args:
            function: `module.name`.
            limit: seconds for one call.
        """
        self.function, self.limit = function, limit
        self._child: Any = None
        self._connection: Connection | None = None

    def __call__(self, *args: Any) -> Any:
        """Return what the function returns.

        Raises:
            IsolatedError: it raised, hung or crashed.
        """
        if self._connection is None:
            self._start()
        assert self._connection is not None
        try:
            self._connection.send(args)
            if not self._connection.poll(self.limit):
                raise IsolatedError(f"{self.function} took more than {self.limit:g} s")
            failed, answer = self._connection.recv()
        except (IsolatedError, EOFError, OSError) as error:
            self.close()
            raise IsolatedError(str(error) or f"{self.function} took its process down") from error
        if failed:
            raise IsolatedError(f"{self.function} raised {answer}")
        return answer

    def close(self) -> None:
        """End the child."""
        if self._connection is not None:
            self._connection.close()
            self._child.kill()
            self._child.join()
            self._connection = None

    def _start(self) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__, self.function.rpartition(".")[0]])
        self._connection, theirs = context.Pipe()
        self._child = context.Process(target=_serve, args=(theirs, self.function), daemon=True)
        self._child.start()
        theirs.close()
        try:
            ready = self._connection.poll(_START) and self._connection.recv()
        except EOFError:
            ready = "its process ended"
        if ready != "ready":
            self.close()
            raise IsolatedError(f"{self.function} could not be loaded: {ready}")


def _serve(connection: Connection, function: str) -> None:
    """Answer calls until the parent hangs up."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.RLIM_INFINITY))
    module, _, name = function.rpartition(".")
    try:
        call = getattr(importlib.import_module(module), name)
    except Exception as error:  # the user's module: anything
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send("ready")
    with contextlib.suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            args = connection.recv()
            try:
                answer = (False, call(*args))
            except Exception as error:
                answer = (True, f"{type(error).__name__}: {str(error)[:500]}")
            connection.send(answer)
