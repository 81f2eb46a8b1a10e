"""`grposcope train --engine trl`: what it hands to TRL, what it refuses, and that its record is one of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grposcope import cli
from grposcope.core.errors import UserError
from grposcope.instruments.gradient import probe_record as probes
from grposcope.lab.objectives import Objective, advantages, divergences, recipes
from grposcope.lab.objectives.surrogates import Cispo
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.setup import prepare
from grposcope.logs import read

pytest.importorskip("trl")
pytest.importorskip("datasets")

from grposcope.engines.trl import arguments, settings, versions
from grposcope.engines.trl import run as engine
from grposcope.engines.trl.loss_arguments import loss_arguments

SMALL = ("--prompts", "4", "--group", "4", "--eval-problems", "8", "--eval-samples", "2", "--threads", "1")
KNOWN = {"vllm_mode": str, "use_vllm": bool, "epsilon_extra": float, "fsdp_config": dict | str | None, "lora_r": int}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("use_vllm=true", True),
        ("use_vllm=False", False),
        ("vllm_mode=colocate", "colocate"),
        ("vllm_mode=3", "3"),
        ("epsilon_extra=1e-3", 1e-3),
        ("lora_r=8", 8),
        ('fsdp_config={"version": 2}', {"version": 2}),
        ("fsdp_config=None", None),
        ("fsdp_config=a=b.json", "a=b.json"),
    ],
)
def test_options_are_values_of_json_or_text(text: str, value: Any) -> None:
    assert arguments.parse([text], KNOWN) == {text.partition("=")[0]: value}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("use_vlm=true", "no such argument; did you mean use_vllm?"),
        ("lora_r=big", "TRL expects int"),
        ("lora_r=true", "TRL expects int"),
        ("use_vllm=1", "TRL expects bool"),
        ("use_vllm", "write key=value"),
        ("num_generations=4", "the setting group decides it"),
        ("logging_steps=5", "cannot be changed"),
        ("__class__=3", "no such argument"),
    ],
)
def test_options_that_cannot_be_are_named(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said.replace("?", r"\?")):
        arguments.parse([text], KNOWN)


def test_what_decides_an_argument_of_trl_is_a_setting_of_ours() -> None:
    from trl import GRPOConfig

    known = arguments.known_options(GRPOConfig)
    assert {"num_generations", "loss_type", "vllm_mode", "deepspeed", "fsdp"} <= known.keys()
    assert set(arguments.SETTING_OF.values()) <= set(vars(TrainConfig()))


@pytest.mark.parametrize(("prompts", "group", "parts", "micro", "processes"), [
    (32, 8, 1, 256, 1), (32, 8, 1, 64, 2), (32, 8, 2, 48, 2), (5, 3, 1, 7, 3), (6, 4, 3, 1, 2),
])  # fmt: skip
def test_a_batch_is_cut_into_equal_parts(prompts: int, group: int, parts: int, micro: int, processes: int) -> None:
    config = TrainConfig(prompts=prompts, group=group, minibatches=parts, interval=2 * parts)
    cut = arguments.batch_arguments(config, micro, processes)
    at_once, passes = cut["per_device_train_batch_size"], cut["gradient_accumulation_steps"]
    assert at_once <= micro
    assert at_once * passes * processes == prompts * group / parts
    assert at_once * processes * cut["steps_per_generation"] == prompts * group
    assert cut["num_iterations"] == 2


ABSENT = {
    "rec_one_side": "needs the surrogate OneSided, and engine trl does not provide it",
    "opmd": "needs the term to the old policy k2, and engine trl does not provide it",
    "asymre": "needs the term to the old policy forward, and engine trl does not provide it",
}
"""Recipe -> why TRL's loss cannot express it."""


@pytest.mark.parametrize(
    "recipe", [one for name, one in recipes.ALL.items() if name not in ABSENT], ids=lambda r: r.name
)
def test_a_recipe_survives_the_way_there_and_back(recipe: Objective) -> None:
    """TRL's arguments for a recipe, read back as an objective, are its factors."""
    arguments, advantage, _ = loss_arguments(recipe.at_length(25), 25)
    args = SimpleNamespace(**{"gradient_accumulation_steps": 1, "steps_per_generation": 1, "epsilon": 0.2, **arguments})
    back, left_out = settings.fresh(args, advantage)
    assert not left_out
    names = {name for name, entry in advantages.ALL.items() if entry.function is back.advantage}
    assert names == {advantage} if advantage else names <= set(settings.SCALES.values())
    assert str(back.reduction) == str(recipe.at_length(25).reduction)
    assert (back.kl, back.entropy) == (recipe.kl, recipe.entropy)
    if not advantage:
        assert back.surrogate == recipe.surrogate


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (
            replace(recipes.GRPO, kl=0.1, divergence=divergences.k1),
            "needs the divergence k1, and engine trl does not provide it; .*use engine grposcope",
        ),
        (
            replace(recipes.CISPO, surrogate=Cispo(low=0.5)),
            "a lower clip of CISPO, and engine trl clips only from above; .*leave out clip_low",
        ),
        (replace(recipes.GRPO, surrogate=Cispo()), "needs the surrogate Cispo, and engine trl has it only with"),
        (replace(recipes.GRPO, advantage=lambda rewards: rewards), "has no name"),
        *((recipes.ALL[name], said) for name, said in ABSENT.items()),
    ],
)
def test_what_trl_does_not_have_is_refused(objective: Objective, said: str) -> None:
    with pytest.raises(UserError, match=said):
        loss_arguments(objective, 25)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--group", "1", "--recipe", "reinforce"), "TRL needs groups of 2 or more"),
        (
            ("--staleness", "2"),
            "staleness has no counterpart in a run of TRL: in TRL the trainer decides how old",
        ),
        (
            ("--correction", "full"),
            "correction has no counterpart in a run of TRL: TRL corrects the mismatch of vLLM",
        ),
        (("--rollouts-every", "5"), "--rollouts-every has no counterpart in a run of TRL"),
        (("--trl", "num_generation=3"), "the setting group decides it|did you mean num_generations"),
        (("--trl", "vllm_mod=server"), "did you mean vllm_mode?"),
        (("--recipe", "reinforce", "--interval", "2"), "use an interval of 1"),
        (("--prompts", "10000"), "lower prompts"),
        (("--allocate", "resample"), "only the draw can be allocated"),
        (("--sampler-precision", "int8"), "--sampler-precision has no counterpart in a run of TRL: TRL samples"),
        (("--allocate", "filter", "--credit", "tree:widths=2x2x2"), "needs more than a group of rollouts"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--engine", "trl", *words]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("grposcope: error: ")
    assert any(part in told for part in said.split("|")), told


@dataclass(frozen=True)
class Noisy(TrainConfig):
    """Settings with one that nobody has told TRL of."""

    noise: float = 0.0


def test_a_new_setting_is_refused_until_a_run_of_trl_follows_it() -> None:
    arguments.refuse_without_counterpart(Noisy(kl=0.1, credit="steps"))
    with pytest.raises(UserError, match="noise has no counterpart in a run of TRL; leave it out"):
        arguments.refuse_without_counterpart(Noisy(noise=0.5))


def test_processes_that_cannot_share_a_batch_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert cli.main(["train", "--engine", "trl", *SMALL, "--out", "nowhere"]) == 2
    assert "16 rollouts (prompts 4 × group 4 / minibatches 1), which 3 processes cannot" in capsys.readouterr().err
    assert cli.main(["train", "--engine", "trl", *SMALL]) == 2
    assert "several processes need one folder" in capsys.readouterr().err
    assert cli.main(["train", *SMALL]) == 2
    assert "engine grposcope runs in one process" in capsys.readouterr().err


def test_options_of_trl_need_its_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--trl", "use_vllm=true"]) == 2
    assert "add --engine trl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "trl", "said"),
    [
        ("callback", "0.20.0", "trl 0.20.0 was found, and the callback needs 0.21.0 or newer"),
        ("trainer", "1.15.2", "trl 1.15.2 was found, and the trainer needs 1.16.0 or newer"),
        ("trainer", "1.17.0", "trl 1.17.0 was found, and the trainer was tested with 1.16 to 1.16"),
    ],
)
def test_versions_outside_are_refused(part: str, trl: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda package: trl if package == "trl" else "5.23.0")
    with pytest.raises(UserError, match=said):
        versions.check(part)


def test_the_callback_goes_on_with_a_newer_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda package: "1.17.0" if package == "trl" else "5.23.0")
    assert "was tested with 0.21 to 1.16" in versions.check("callback")
    monkeypatch.setattr(versions, "version", lambda package: "1.16.0" if package == "trl" else "5.24.0")
    said = "transformers 5.24.0 was found, and the callback was tested with 4.55 to 5.23"
    assert versions.check("callback").startswith(said)
    assert versions.check("trainer") == ""
    monkeypatch.setattr(versions, "version", lambda package: "1.16.3" if package == "trl" else "5.23.0")
    assert versions.check("callback") == versions.check("trainer") == ""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trl") / "run"
    assert cli.main(["train", "--engine", "trl", "--steps", "4", *SMALL, "--eval-every", "2", "--checkpoint-every", "2",
                     "--schedule", "constant", "--warmup", "0", "--out", str(folder)]) == 0  # fmt: skip
    return folder


def test_the_record_is_one_of_ours(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = read(finished)
    assert (run.meta.engine, run.meta.name, run.meta.status) == ("trl", "run", "finished")
    assert run.table["step"].tolist() == [1, 2, 3, 4]
    assert run.table["lr"].tolist() == [4e-4] * 4
    assert run.groups is not None
    assert set(run.groups.sizes.tolist()) == {4}
    evals = [json.loads(line) for line in (finished / "evals.jsonl").read_text().splitlines()]
    assert [row["step"] for row in evals] == [0, 2, 4]
    assert {"pass@1", "pass@2", "reward", "length"} <= evals[0].keys()
    summary = json.loads((finished / "summary.json").read_text())
    assert (summary["rollouts"], summary["steps"], summary["interrupted"]) == (64, 4, False)
    for command in (["report", finished], ["diagnose", finished], ["runs", finished.parent]):
        assert cli.main([*map(str, command)]) == 0
    assert "arithmetic" in (finished / "page.html").read_text()
    assert cli.main(["probe", "--model", str(finished), "--prompts", "8", "--group", "4", "--out",
                     str(finished.parent / "probe")]) == 0  # fmt: skip


def test_the_first_evaluation_is_that_of_our_loop(finished: Path, tmp_path: Path) -> None:
    """Same model, problems and draws: the same estimate."""
    assert cli.main(["train", "--steps", "1", *SMALL, "--out", str(tmp_path / "ours")]) == 0
    first = [json.loads((folder / "evals.jsonl").open().readline()) for folder in (finished, tmp_path / "ours")]
    assert first[0] == first[1]


@pytest.mark.slow
def test_recipes_credit_and_probes_of_ours_go_through_trl(tmp_path: Path) -> None:
    """An advantage that TRL does not have, credit of the task's steps, and probes in the record."""
    for name, words in {"rloo": ("--recipe", "rloo"), "steps": ("--credit", "steps")}.items():
        folder = tmp_path / name
        assert cli.main(["train", "--engine", "trl", "--steps", "2", *SMALL, "--probe-every", "2", "--eval-problems",
                         "0", "--out", str(folder), *words]) == 0  # fmt: skip
        run = read(folder)
        assert run.meta.status == "finished"
        assert any(name.startswith("geometry/") for name in run.table)
        assert probes.of_run(run)


@pytest.mark.slow
def test_prompts_are_drawn_by_success_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Forecasts know the task's difficulty; the record has what was promised."""
    folder = tmp_path / "run"
    command = ["train", "--engine", "trl", "--steps", "3", *SMALL, "--eval-problems", "0", "--recipe", "rloo"]
    assert cli.main([*command, "--allocate", "filter", "--out", str(folder)]) == 0
    run = read(folder)
    assert run.setting("allocate") == "filter"
    for name in ("live", "live_promised", "effective_prompts"):
        assert ((run.table[f"allocation/{name}"] >= 0) & (run.table[f"allocation/{name}"] <= 4)).all()
    assert len(set(run.table["allocation/live_promised"].tolist())) > 1  # it has learned
    assert run.groups is not None
    assert run.table["allocation/live"].tolist() == pytest.approx(1 - run.table["dead_fraction"])
    assert "skipped problems count" in capsys.readouterr().err


def test_forecasts_in_trl_know_the_difficulty_of_a_task_of_ours() -> None:
    setup = prepare(TrainConfig(allocate="filter", prompts=2, group=2, eval_problems=0))
    data = engine._dataset(setup)
    assert data["difficulty"][:5] == [setup.task.difficulty(problem) for problem in setup.train_set[:5]]
    assert len(set(data["difficulty"])) > 1


def test_a_finished_run_is_not_resumed(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--resume", str(finished)]) == 2
    assert "is finished" in capsys.readouterr().err
    assert cli.main(["train", "--engine", "trl", *SMALL, "--out", str(finished)]) == 2
    assert "choose another folder with --out" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(finished: Path, tmp_path: Path) -> None:
    """Ended after its checkpoint of step 2, a run goes on to the rows and weights of one that was never stopped."""
    import shutil

    from safetensors.torch import load_file

    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / "model")
    shutil.rmtree(folder / "trl" / "checkpoint-4")
    assert cli.main(["train", "--resume", str(folder)]) == 0
    before, after = read(finished), read(folder)
    assert after.table["step"].tolist() == [1, 2, 3, 4]
    assert after.table["reward"].tolist() == before.table["reward"].tolist()
    one, other = (load_file(place / "model" / "model.safetensors") for place in (finished, folder))
    assert all(bool((one[name] == other[name]).all()) for name in one)


@pytest.mark.slow
def test_a_run_whose_prompts_are_drawn_goes_on(tmp_path: Path) -> None:
    """Ended behind step 2, as a kill leaves it: without the history of checkpoint-4 it goes on from checkpoint-2."""
    folder = tmp_path / "run"
    assert cli.main(["train", "--engine", "trl", "--steps", "5", *SMALL, "--eval-problems", "0", "--recipe", "rloo",
                     "--allocate", "filter", "--checkpoint-every", "2", "--keep-checkpoints", "9", "--out",
                     str(folder)]) == 0  # fmt: skip
    before = read(folder)
    (folder / "summary.json").unlink()
    (folder / "trl" / "checkpoint-4" / "grposcope_allocation.json").unlink()
    assert cli.main(["train", "--resume", str(folder)]) == 0
    after = read(folder)
    for name in ("step", "reward", "grad_norm", "allocation/live_promised", "allocation/effective_prompts"):
        assert after.table[name].tolist() == before.table[name].tolist()


@pytest.mark.slow
def test_two_processes_make_one_run(tmp_path: Path) -> None:
    """Under torchrun with adapters: one record, complete, and a model with the adapters merged into it."""
    pytest.importorskip("peft")
    folder = tmp_path / "two"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29561", "-m",
        "grposcope", "train", "--engine", "trl", "--steps", "3", *SMALL, "--out", str(folder),
        "--trl", "use_peft=true", "--trl", "lora_r=4", "--json",
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["steps"] == 3
    run = read(folder)
    assert run.table["step"].tolist() == [1, 2, 3]
    assert run.groups is not None
    assert len(run.groups.step) == 3 * 4
    assert [json.loads(line)["step"] for line in (folder / "evals.jsonl").read_text().splitlines()] == [0, 3]
    assert json.loads((folder / "model" / "config.json").read_text())["model_type"] == "llama"
