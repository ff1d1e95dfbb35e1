"""A program that takes ``vllm serve``'s command line and prints vLLM's lines, without an engine.

``FAKE_VLLM`` in the environment tells how it goes wrong: ``dies`` at its start, ``never`` healthy,
``dies_under_load``, ``stubborn`` against SIGTERM. ``FAKE_VLLM_PIDS`` names a file that its own id
and that of a process it starts are written to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from servers import Engine, read_request, response

MODE = os.environ.get("FAKE_VLLM", "")
LOG = (
    "[default_loader.py:502] Loading weights took 2.96 seconds",
    "[gpu_model_runner.py:5150] Model loading took 15.27 GiB memory and 4.206347 seconds",
    "[monitor.py:53] torch.compile took 22.31 s in total",
    "[kv_cache_utils.py:2328] GPU KV cache size: 407,344 tokens, "
    "Maximum concurrency for 40,960 tokens per request: 9.94x",
    "[gpu_model_runner.py:6582] Graph capturing finished in 18 secs, took 0.57 GiB",
    "[core.py:396] init engine (profile, create kv cache, warmup model) took 45.58 s "
    "(compilation: 22.31 s)",
)


class FakeVllm(Engine):
    """Answers as the engine of the tests does, and health."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            path, headers, body = await read_request(reader)
            if path == "/v1/completions":
                if MODE == "dies_under_load":
                    print("torch.OutOfMemoryError: CUDA out of memory", flush=True)
                    os._exit(1)
                await self._answer(json.loads(body), headers, writer)
            elif path == "/health":
                status = "503 Service Unavailable" if MODE == "never" else "200 OK"
                writer.write(response(status, "text/plain", ""))
            else:
                writer.write(self._page(path))


async def serve(words: argparse.Namespace) -> None:
    """Serves until it is killed."""
    engine = FakeVllm(models=(words.model,), ttft_s=0.02, tpot_s=0.002, max_model_len=100_000)
    server = await asyncio.start_server(engine, words.host, words.port)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Prints, then serves or dies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("serve")
    parser.add_argument("model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    words, _ = parser.parse_known_args()
    print("arguments:", *sys.argv[1:], flush=True)
    if MODE == "dies":
        print("ValueError: No available memory for the cache blocks.", flush=True)
        raise SystemExit(3)
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if pids := os.environ.get("FAKE_VLLM_PIDS"):
        child = subprocess.Popen(["sleep", "600"])
        with Path(pids).open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {child.pid}\n")
    for line in LOG:
        print("INFO 11-30 12:00:00", line, flush=True)
    asyncio.run(serve(words))


if __name__ == "__main__":
    main()
