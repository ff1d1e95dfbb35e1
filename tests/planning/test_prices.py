"""Prices: the card's dated figure, the user's before it, and mistakes in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.planning.prices import Prices, read_prices

H100 = get_gpu("h100_sxm")


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_shipped_price_says_whose_and_when() -> None:
    found = Prices().rent(H100)
    assert found.usd == H100.cloud_price_usd_hour
    assert found.source.startswith("AWS")
    assert found.source[-10:-6].isdigit()


def test_a_price_that_nobody_knows_is_none() -> None:
    assert Prices().rent(get_gpu("b300_sxm")).usd is None


def test_the_users_file_goes_first(tmp_path: Path) -> None:
    text = "gpus: {H100-SXM: {cloud_usd_hour: 2.5, purchase_usd: 28000}, l40s: 0.8}\npue: 1.3\n"
    prices = read_prices(write(tmp_path, text))
    assert prices.rent(H100).usd == 2.5
    assert prices.purchase(H100).usd == 28000
    assert prices.rent(get_gpu("l40s")).usd == 0.8
    assert prices.rent(get_gpu("h200")).source != "your prices"
    assert prices.pue == 1.3


def test_everything_wrong_in_a_file_is_told_at_once(tmp_path: Path) -> None:
    text = "gpus:\n  h1000: 2\n  h100: {cloud_usd_hours: 2}\nelectricity_usd_kwh: -1\n"
    with pytest.raises(UserError, match=r"(?s)prices.yaml:4.*prices.yaml:2.*prices.yaml:3"):
        read_prices(write(tmp_path, text))
