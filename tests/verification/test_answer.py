"""Events of a stream as tokens and their times."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.verification.load.answer import DONE, Answer
from dynosim.verification.load.bad_answer import BadAnswer
from dynosim.verification.load.event_stream import LONGEST_LINE_BYTES, EventStream


def choice(text: str = "a", finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": finish_reason, **more}]}


def counted(tokens: int) -> dict[str, Any]:
    return {"usage": {"completion_tokens": tokens, "prompt_tokens": 5}}


END = {"choices": [], **counted(5)}


def answer(*events: dict[str, Any], asked: int = 5) -> Answer:
    """Returns an answer whose events came at 1, 2, 3, … s."""
    found = Answer(asked)
    for at_s, event in enumerate(events, 1):
        found.take(json.dumps(event).encode(), float(at_s))
    found.take(DONE, 99.0)
    found.end()
    return found


@pytest.mark.parametrize(
    "events",
    [
        [choice() | counted(1), choice() | counted(3), choice() | counted(5)],
        [choice(token_ids=[1]), choice(token_ids=[2, 3]), choice(token_ids=[4, 5])],
        [choice(logprobs={"tokens": t}) for t in (["a"], ["b", "c"], ["d", "e"])],
        [choice(logprobs={"content": [{}] * n}) for n in (1, 2, 2)],
        # Two more tokens than events: one for each but the first.
        [choice(), choice(), choice()],
    ],
    ids=["running usage", "token ids", "logprobs", "logprobs of a chat", "not told"],
)
def test_how_many_tokens_an_event_holds(events: list[dict[str, Any]]) -> None:
    found = answer(*events, END)
    assert found.token_s == [1.0, 2.0, 2.0, 3.0, 3.0]
    assert found.input_tokens == 5


def test_a_token_without_text_counts_and_an_end_without_text_does_not() -> None:
    found = answer(choice(), choice(""), choice("", "length"), asked=2)
    assert found.token_s == [1.0, 2.0]


def test_usage_that_comes_only_with_the_last_text_is_no_running_count() -> None:
    found = answer(choice(), choice(), choice("b", "length") | counted(3), asked=3)
    assert found.token_s == [1.0, 2.0, 3.0]


def test_a_stream_without_a_mark_of_its_end_is_complete_when_it_says_so() -> None:
    found = Answer(1)
    found.take(json.dumps(choice("a", "length")).encode(), 1.0)
    found.end()
    cut = Answer(1)
    cut.take(json.dumps(choice("a")).encode(), 1.0)
    with pytest.raises(BadAnswer, match="hung up after 1 of 1 tokens"):
        cut.end()


@given(st.binary(max_size=60), st.integers(1, 7))
def test_bytes_are_cut_into_the_same_events_however_they_come(content: bytes, step: int) -> None:
    stream = b"data: one\n\n: note\r\ndata:two\r\ndata: lines\r\n\r\n" + content
    whole = list(EventStream().feed(stream))
    pieces = EventStream()
    cut = [e for i in range(0, len(stream), step) for e in pieces.feed(stream[i : i + step])]
    assert cut == whole
    assert whole[:2] == [b"one", b"two\nlines"]


def test_a_line_without_an_end_is_given_up() -> None:
    stream = EventStream()
    with pytest.raises(BadAnswer, match="a line of more than"):
        list(stream.feed(b"x" * (LONGEST_LINE_BYTES + 1)))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_no_event_breaks_the_client(value: Any) -> None:
    shapes = [value, {"choices": value}, {"choices": [value]}, {"usage": value, "choices": []}]
    shapes += [{"choices": [{"text": value, "token_ids": value, "logprobs": value}]}]
    shapes += [{"error": value}, {"usage": {"completion_tokens": value}, "choices": [{}]}]
    for shape in shapes:
        found = Answer(3)
        with suppress(BadAnswer):
            found.take(json.dumps(shape).encode(), 1.0)
            found.end()
        assert len(found.token_s) <= 3
