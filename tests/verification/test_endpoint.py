"""Addresses and what proves who asks."""

from __future__ import annotations

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.verification.load.endpoint import Endpoint


@pytest.mark.parametrize("url", ["http://h:8000", "http://h:8000/", "http://h:8000/v1/"])
def test_an_address_with_and_without_v1(url: str) -> None:
    assert Endpoint.at(url).url("/v1/models") == "http://h:8000/v1/models"


def test_a_path_before_v1_stays() -> None:
    assert Endpoint.at("https://h/team/v1").url("/health") == "https://h/team/health"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("localhost:8000", "not an http or https address"),
        ("ftp://h/x", "not an http or https address"),
        ("http://h:99999", "out of range"),
        ("http://me:hunter2@h", r"http://\*\*\*@h: an address with a user"),
        ("http://h/v1?key=hunter2", r"http://h/v1\?\*\*\*: an address with"),
    ],
)
def test_addresses_that_are_refused(url: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        Endpoint.at(url)
    assert "hunter2" not in str(caught.value)


def test_keys_and_headers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "sk-1\n")
    monkeypatch.setenv("HEADERS", "X-Team: a b\nX-Route: c:d")
    endpoint = Endpoint.at("http://h", api_key_env="KEY", header_env="HEADERS")
    assert endpoint.headers == {
        "Authorization": "Bearer sk-1",
        "X-Team": "a b",
        "X-Route": "c:d",
    }
    assert "sk-1" not in repr(endpoint)
    assert endpoint.notes() == [
        "keys went to the server unencrypted: its address is http, not https"
    ]
    assert not Endpoint.at("https://h", api_key_env="KEY").notes()
    assert not Endpoint.at("http://localhost:1", api_key_env="KEY").notes()


@pytest.mark.parametrize("content", ["no colon", ": no name", "X Y: z", "X: a\x07"])
def test_lines_that_are_no_headers(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADERS", f"X-Good: yes\n{content}")
    with pytest.raises(UserError, match=r"HEADERS, line 2: not a header") as caught:
        Endpoint.at("http://h", header_env="HEADERS")
    assert content not in str(caught.value)


def test_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEY", raising=False)
    with pytest.raises(UserError, match=r"(?s)KEY is not set.*export KEY=…"):
        Endpoint.at("http://h", api_key_env="KEY")


def test_what_a_server_says_is_quoted_on_one_short_line() -> None:
    endpoint = Endpoint(base_url="http://h", headers={"Authorization": "Bearer sk-1"})
    assert endpoint.quote("bad key sk-1\r\n\x1b[31m   for you") == "bad key *** [31m for you"
    assert len(endpoint.quote("x" * 1000)) == 201
