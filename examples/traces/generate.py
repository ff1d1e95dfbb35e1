"""Writes the example traces beside it: synthetic, in the formats of published ones.

    python examples/traces/generate.py [FOLDER]

No row is taken from a real trace. `chat_mooncake.jsonl` are multi-turn chats: a session's prompt is
one of three applications' system prompts, the whole conversation so far, and a new question; so
prompts share prefixes within a session and, for the system prompt, between sessions.
"""

from __future__ import annotations

import csv
import datetime
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from dynosim.sim.random_streams import stream
from dynosim.sim.workload.arrivals import paced_arrivals
from dynosim.sim.workload.lengths import lognormal_lengths

SEED = 2026
BLOCK_TOKENS = 512

CHAT_ROWS = 600
SESSIONS_PER_S = 1.12
SYSTEM_PROMPTS = (640, 1100, 1600)  # tokens of each application's system prompt and tools
APPLICATION_SHARE = (0.5, 0.3, 0.2)
GO_ON = 0.75  # chance of another turn, so 4 turns a session on average
MAX_TURNS = 20
AGENTS = 60


@dataclass
class Session:
    """One conversation: the ids of the blocks that its growing prompt has filled."""

    application: int
    tokens: int
    ids: list[int]


def chat_rows() -> list[dict[str, object]]:
    """Returns the first rows of a window opened once sessions of all ages are under way."""
    rng = stream(SEED, "chat")
    fresh = count(1000)  # ids below are the applications' own blocks
    warm_s = 600.0
    turns = []
    for start_s in np.cumsum(rng.exponential(1 / SESSIONS_PER_S, size=1000)):
        application = int(rng.choice(len(SYSTEM_PROMPTS), p=APPLICATION_SHARE))
        session = Session(application, SYSTEM_PROMPTS[application], _system_ids(application))
        turns += list(_turns(session, float(start_s), rng, fresh))
    turns.sort(key=lambda turn: turn[0])
    window = [turn for turn in turns if turn[0] >= warm_s * 1000][:CHAT_ROWS]
    origin = window[0][0]
    return [{"timestamp": at - origin, **row} for at, row in _numbered(window)]


def _system_ids(application: int) -> list[int]:
    return [100 * application + i for i in range(SYSTEM_PROMPTS[application] // BLOCK_TOKENS)]


def _turns(
    session: Session, at_s: float, rng: np.random.Generator, fresh: Iterator[int]
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yields (ms, row) of each turn; people read, think and type between an answer and the next."""
    for _ in range(MAX_TURNS):
        pasted = rng.random() < 0.12  # a document or a log, pasted into the question
        question = int(lognormal_lengths(1, 1800 if pasted else 90, rng, cv=1.0)[0])
        answer = min(int(lognormal_lengths(1, 260, rng, cv=0.8)[0]), 1500)
        session.tokens += question
        ids = _grow(session, fresh)
        row = {"input_length": session.tokens, "output_length": answer, "hash_ids": ids}
        yield round(at_s * 1000), row
        if rng.random() > GO_ON:
            return
        session.tokens += answer
        at_s += answer * 0.02 + rng.lognormal(np.log(14), 0.7)


def _grow(session: Session, fresh: Iterator[int]) -> list[int]:
    """Returns one id a block, the last partial one included; only full blocks are kept on."""
    while len(session.ids) < session.tokens // BLOCK_TOKENS:
        session.ids.append(next(fresh))
    partial = [next(fresh)] if session.tokens % BLOCK_TOKENS else []
    return session.ids + partial


def _numbered(
    window: list[tuple[int, dict[str, object]]],
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yields the rows with ids numbered by first appearance, as published traces have them."""
    numbers: dict[int, int] = {}
    for at, row in window:
        ids = row["hash_ids"]
        assert isinstance(ids, list)
        yield at, row | {"hash_ids": [numbers.setdefault(i, len(numbers)) for i in ids]}


def agent_rows() -> list[dict[str, object]]:
    """Returns 60 agents' requests: each plans, spawns helpers that use tools, and joins them.

    A helper knows what the agent has read so far; every call knows all the helper's earlier ones.
    """
    rng = stream(SEED, "agents")
    fresh = count(1000)
    rows = []
    for agent, start_s in enumerate(np.cumsum(rng.exponential(2.0, size=AGENTS)).tolist()):
        session = Session(0, SYSTEM_PROMPTS[2], _system_ids(2))
        plan = _call(session, 300, 180, rng, fresh)
        plan |= {"request_id": f"a{agent}.plan", "timestamp": round(start_s * 1000)}
        rows.append(plan)
        last = []
        for helper in range(int(rng.integers(2, 5))):
            own = Session(0, session.tokens, list(session.ids))
            before = f"a{agent}.plan"
            for step in range(int(rng.integers(1, 4))):
                tool_ms = round(float(rng.lognormal(np.log(800), 1.0)), 1) if step else 0.0
                name = f"a{agent}.h{helper}.{step}"
                call = _call(own, 900, 120, rng, fresh)
                rows.append(call | {"request_id": name, "wait_for": [before]})
                rows[-1] |= {"tool_wait_ms": tool_ms}
                before = name
            last.append(before)
        join = _call(session, 500 * len(last), 400, rng, fresh)
        rows.append(join | {"request_id": f"a{agent}.join", "wait_for": last})
    numbers: dict[int, int] = {}
    for row in rows:
        ids = row["hash_ids"]
        assert isinstance(ids, list)
        row["hash_ids"] = [numbers.setdefault(i, len(numbers)) for i in ids]
    return rows


def _call(
    session: Session, read: int, answer: int, rng: np.random.Generator, fresh: Iterator[int]
) -> dict[str, object]:
    """Returns a request that has read some more, to which its answer is added."""
    session.tokens += int(lognormal_lengths(1, read, rng, cv=0.8)[0])
    ids = _grow(session, fresh)
    tokens_out = int(lognormal_lengths(1, answer, rng, cv=0.6)[0])
    row = {"input_length": session.tokens, "output_length": tokens_out, "hash_ids": ids}
    session.tokens += tokens_out
    return row


def azure_rows() -> Iterator[tuple[str, int, int]]:
    """Yields 400 requests of a code assistant: bursty (CV 3), long prompts, short answers."""
    at_s = paced_arrivals(400, 2.5, 1 / 9, stream(SEED, "azure arrivals"))
    tokens_in = lognormal_lengths(400, 2000, stream(SEED, "azure input"), cv=1.0)
    tokens_out = lognormal_lengths(400, 28, stream(SEED, "azure output"), cv=1.8)
    origin = datetime.datetime(2026, 1, 5, 9, 0, 0)
    for at, n_in, n_out in zip(at_s, np.minimum(tokens_in, 7500), tokens_out, strict=True):
        stamp = origin + datetime.timedelta(seconds=float(at))
        yield f"{stamp:%Y-%m-%d %H:%M:%S.%f}0", int(n_in), int(n_out)


def vidur_rows() -> Iterator[tuple[str, int, int]]:
    """Yields 400 Poisson requests of a chat service."""
    at_s = paced_arrivals(400, 5.0, 1.0, stream(SEED, "vidur arrivals"))
    tokens_in = lognormal_lengths(400, 1150, stream(SEED, "vidur input"), cv=0.9)
    tokens_out = lognormal_lengths(400, 210, stream(SEED, "vidur output"), cv=0.9)
    for at, n_in, n_out in zip(at_s, tokens_in, tokens_out, strict=True):
        yield f"{at:.6f}", int(n_in), int(n_out)


def burstgpt_rows() -> Iterator[tuple[object, ...]]:
    """Yields 400 requests on whole seconds in the newer column set; 3 % have failed."""
    rng = stream(SEED, "burstgpt")
    at_s = paced_arrivals(400, 1.0, 0.5, stream(SEED, "burstgpt arrivals"))
    tokens_in = lognormal_lengths(400, 600, stream(SEED, "burstgpt input"), cv=1.1)
    tokens_out = lognormal_lengths(400, 230, stream(SEED, "burstgpt output"), cv=0.8)
    for at, n_in, n_out in zip(at_s, tokens_in.tolist(), tokens_out.tolist(), strict=True):
        answered = 0 if rng.random() < 0.03 else n_out
        model, log = ("GPT-4", "API log") if rng.random() < 0.2 else ("ChatGPT", "Conversation log")
        session, elapsed = int(rng.integers(120)), round(0.5 + 0.02 * answered, 3)
        yield int(at), session, elapsed, model, n_in, answered, n_in + answered, log


def _write_csv(path: Path, header: str, rows: Iterable[tuple[object, ...]], end: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream_out:
        writer = csv.writer(stream_out, lineterminator=end)
        writer.writerow(header.split(","))
        writer.writerows(rows)


def generate(folder: Path) -> None:
    """Writes the example traces into ``folder``."""
    chat = "".join(json.dumps(row) + "\n" for row in chat_rows())
    (folder / "chat_mooncake.jsonl").write_text(chat, encoding="utf-8", newline="\n")
    agents = "".join(json.dumps(row) + "\n" for row in agent_rows())
    (folder / "agents.jsonl").write_text(agents, encoding="utf-8", newline="\n")
    header = "TIMESTAMP,ContextTokens,GeneratedTokens"
    _write_csv(folder / "azure_like.csv", header, azure_rows(), "\r\n")
    header = "arrived_at,num_prefill_tokens,num_decode_tokens"
    _write_csv(folder / "vidur_like.csv", header, vidur_rows(), "\n")
    header = "Timestamp,Session ID,Elapsed time,Model,"
    header += "Request tokens,Response tokens,Total tokens,Log Type"
    _write_csv(folder / "burstgpt_like.csv", header, burstgpt_rows(), "\n")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
