"""Accuracy kept per weight format: shipped figures, what is native, what a user says instead."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.llm.catalog import get_model, list_models
from dynosim.hardware_models.llm.quality import OVERRIDES, quality_of
from dynosim.hardware_models.resolve import quantized


def test_an_unquantised_checkpoint_keeps_everything() -> None:
    assert quality_of(get_model("Qwen/Qwen3-32B")) == 1.0


def test_fewer_bits_keep_less() -> None:
    names = ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8", "nvidia/Qwen3-32B-NVFP4", "Qwen/Qwen3-32B-AWQ")
    kept = [quality_of(get_model(name)) for name in names]
    assert kept == sorted(kept, reverse=True)
    assert kept[1] == 0.992
    assert kept[3] == 0.98


def test_quantising_while_loading_counts() -> None:
    assert quality_of(quantized(get_model("Qwen/Qwen3-32B"), "fp8")) == 0.992
    assert quality_of(quantized(get_model("Qwen/Qwen3-30B-A3B"), "experts_int8")) == 0.992


def test_a_format_that_the_model_was_published_in_is_the_original() -> None:
    assert quality_of(get_model("openai/gpt-oss-120b")) == 1.0
    assert quality_of(get_model("deepseek-ai/DeepSeek-V3")) == 1.0
    assert quality_of(get_model("nvidia/DeepSeek-R1-0528-NVFP4")) == 0.984


def test_every_model_of_the_catalogue_has_one() -> None:
    assert all(0.9 < quality_of(get_model(name)) <= 1.0 for name in list_models())


def test_every_figure_has_a_source() -> None:
    card = read_yaml(DATA / "quality.yaml")
    for row in (*card["formats"].values(), card["native"]):
        source = card["sources"][row["source"]]
        assert source["title"]
        assert source["url"] or row.get("estimate") or row["value"] == 1.0
        assert isinstance(source["date"], datetime.date)


class TestOverrides:
    def test_a_format_or_a_model(self) -> None:
        awq, fp8 = get_model("Qwen/Qwen3-32B-AWQ"), get_model("Qwen/Qwen3-32B-FP8")
        own = {"int4": 0.9, "Qwen/Qwen3-32B-FP8": 0.999}
        assert quality_of(awq, own) == 0.9
        assert quality_of(fp8, own) == 0.999
        assert quality_of(get_model("Qwen/Qwen3-14B-FP8"), own) == 0.992

    def test_a_file_named_by_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "quality.yaml"
        file.write_text("int4: 0.9\nopenai/gpt-oss-20b: 0.5\n")
        monkeypatch.setenv(OVERRIDES, str(file))
        assert quality_of(get_model("Qwen/Qwen3-32B-AWQ")) == 0.9
        assert quality_of(get_model("openai/gpt-oss-20b")) == 0.5

    @pytest.mark.parametrize(
        ("own", "message"),
        [
            ({"fp88": 0.9}, "nearest: fp8"),
            ({"fp8": 98}, "no share of accuracy"),
            ({"fp8": 0.0}, "no share of accuracy"),
            ({"fp8": "high"}, "no share of accuracy"),
        ],
    )
    def test_mistakes_are_named(self, own: dict[str, float], message: str) -> None:
        with pytest.raises(UserError, match=message):
            quality_of(get_model("Qwen/Qwen3-32B"), own)
