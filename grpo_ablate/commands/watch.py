"""`python -m grpo_ablate watch [FOLDER]`: the report of running runs, live in a browser."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grpo_ablate import live, liveness


def main(argv: list[str]) -> int:
    """Serve the page until Ctrl-C.

    Returns:
        0, or 2 for bad input.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate watch")
    parser.add_argument("folder", nargs="?", default="multirun_outputs", type=Path)
    parser.add_argument("--port", type=int, default=8321)
    args = parser.parse_args(argv)
    problem = ""
    if not liveness.run_folders(args.folder):
        problem = f"no runs under {args.folder}; name the output_dir of a study"
    elif not 0 <= args.port < 65536:
        problem = f"--port {args.port} is no port; choose one from 1 to 65535, or 0 for a free one"
    if not problem:
        try:
            server = live.server(args.folder, args.port)
        except OSError as error:
            problem = f"port {args.port} cannot be had ({error.strerror}); choose another --port"
    if problem:
        print(f"grpo_ablate: {problem}", file=sys.stderr)
        return 2
    with server:
        print(f"http://{live.HOST}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0
