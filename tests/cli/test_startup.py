"""``dynosim startup`` and the options of scaling, as users call them."""

import json

from dynosim.cli import run

LLAMA = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "h100"]


def test_stages_add_up(capsys):
    assert run(["startup", *LLAMA, "--json", "--at-once", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(stage["seconds"] for stage in found["stages"]) == found["total_s"]
    assert len(found["at_once_s"]) == 3
    assert min(found["at_once_s"]) > found["total_s"]


def test_the_same_in_words(capsys):
    assert run(["startup", *LLAMA, "--startup", "snapshot", "--startup-storage", "nfs"]) == 0
    assert "restore" in capsys.readouterr().out


def test_errors_name_the_option(capsys):
    assert run(["startup", *LLAMA, "--at-once", "0"]) == 2
    assert "--at-once" in capsys.readouterr().err
    load = ["--num-prompts", "5"]
    assert run(["simulate", *LLAMA, *load, "--autoscaler", "keda"]) == 2
    assert "max_replicas" in capsys.readouterr().err
    assert run(["simulate", *LLAMA, *load, "--failures", "flood@5"]) == 2
    assert "crash@120:0" in capsys.readouterr().err


def test_an_slo_that_one_request_alone_misses_is_infeasible(capsys):
    scaled = ["--autoscaler", "keda", "--max-replicas", "4", "--autoscaler-target", "4"]
    load = ["--isl", "8000", "--num-prompts", "20", "--request-rate", "1"]
    asked = ["--autoscaler-slo-ttft-ms", "20"]
    assert run(["simulate", *LLAMA, *load, *scaled, *asked]) == 0
    assert "infeasible with any number of replicas" in capsys.readouterr().err
    asked = ["--autoscaler-slo-ttft-ms", "20000"]
    assert run(["simulate", *LLAMA, *load, *scaled, *asked]) == 0
    assert "infeasible" not in capsys.readouterr().err


def test_options_of_scaling_without_scaling_are_pointed_out(capsys):
    assert run(["simulate", *LLAMA, "--num-prompts", "5", "--max-replicas", "4"]) == 0
    assert "there is no use for max_replicas" in capsys.readouterr().err
