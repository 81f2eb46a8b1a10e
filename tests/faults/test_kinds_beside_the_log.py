"""Kinds that scripts, rows and rollouts of public reports show: what is named, and that a sound twin is left alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked import asked
from test_reported_kinds import Row, false_claims, log, present, rows

from grposcope.core.rollouts import Rollout
from grposcope.core.run import Run
from grposcope.faults.judge_settings import lint
from grposcope.instruments.lint.read import read as read_settings
from grposcope.logs import read
from grposcope.signs.rollouts.claims import advantages, tokens
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.texts import right_answers

SCRIPT = """
{imports}
from peft import PeftModel
from trl import GRPOConfig, GRPOTrainer
model = {model}
{more}
args = GRPOConfig(output_dir="out", learning_rate=1e-5, beta=0.04, num_generations=8, {settings})
trainer = GRPOTrainer(model=model, reward_funcs=[right], args=args, train_dataset=data{arguments})
"""
SAVED = 'PeftModel.from_pretrained(base, "adapter"{})'
MASKED = "def rollout(prompts, trainer):\n    return {'env_mask': masks(prompts)}"


def of_script(folder: Path, model: str = "base", imports: str = "", more: str = "", settings: str = "",
              arguments: str = "") -> dict[str, str]:  # fmt: skip
    """Fault -> why, of what is present in a script, without what its settings alone would have."""
    path = folder / "train.py"
    path.write_text(SCRIPT.format(model=model, imports=imports, more=more, settings=settings, arguments=arguments))
    beside = ("update not applied", "setting not in force", "tool output trained on")
    return {f.fault: f.because for f in lint(read_settings(path)) if f.present and f.fault in beside}


def test_adapters_that_are_loaded_frozen(tmp_path: Path) -> None:
    """As in TRL #6700 and #3031; whatever thaws them, or makes others, is left alone."""
    said = of_script(tmp_path, SAVED.format(""))
    assert list(said) == ["update not applied"]
    assert said["update not applied"].startswith("line 5 loads the adapter without is_trainable=True")
    assert list(of_script(tmp_path, SAVED.format(", is_trainable=False"))) == ["update not applied"]
    assert list(of_script(tmp_path, 'AutoPeftModelForCausalLM.from_pretrained("adapter")')) == ["update not applied"]
    for trained in (", is_trainable=True", ", is_trainable=flag", ", **options"):
        assert of_script(tmp_path, SAVED.format(trained)) == {}
    for more in ("model = model.merge_and_unload()", "model.set_adapter('default')", "p.requires_grad = True"):
        assert of_script(tmp_path, SAVED.format(""), more=more) == {}
    assert of_script(tmp_path, SAVED.format(""), arguments=", peft_config=lora") == {}
    assert of_script(tmp_path, "base", more="judge = " + SAVED.format("")) == {}, "another model"


def test_a_script_says_that_adapters_are_trained(tmp_path: Path) -> None:
    of_script(tmp_path, SAVED.format(", is_trainable=True"))
    assert read_settings(tmp_path / "train.py").adapters is True


def test_what_a_replaced_trainer_may_not_take(tmp_path: Path) -> None:
    """As in Unsloth #3573 and #5673, and TRL #4975."""
    unsloth, own = "from unsloth import FastLanguageModel", ", rollout_func=rollout"
    assert list(of_script(tmp_path, imports=unsloth, arguments=own)) == ["setting not in force"]
    assert list(of_script(tmp_path, imports=unsloth, arguments=own, more=MASKED)) == ["tool output trained on"]
    assert of_script(tmp_path, arguments=own, more=MASKED) == {}
    assert of_script(tmp_path, imports=unsloth) == {}
    liger = of_script(tmp_path, settings="use_liger_kernel=True", arguments=", tools=[search]")
    assert "TRL before #4975 of February 2026" in liger["tool output trained on"]
    assert of_script(tmp_path, settings="use_liger_kernel=True", arguments=", tools=None") == {}


def test_settings_without_a_script_are_not_judged_by_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("num_generations: 8\nbeta: 0.04\nlearning_rate: 1.0e-6\n")
    told = {finding.fault for finding in lint(read_settings(tmp_path / "config.yaml"))}
    assert not told & {"update not applied", "setting not in force", "tool output trained on"}


def test_the_script_beside_a_log_has_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One script that can be read; of two none is taken."""

    def change(k: int, row: Row) -> None:
        row.update(kl=0.0, reward=0.3 + 0.01 * (k % 3))

    log(tmp_path / "log.jsonl", rows(1, change))
    of_script(tmp_path, SAVED.format(""))
    (tmp_path / "notes.py").write_text("print('nothing')\n")
    assert asked("diagnose", tmp_path)[0] == 0
    out = capsys.readouterr().out
    assert "update not applied" in out
    assert "load it with is_trainable=True" in " ".join(out.split())
    (tmp_path / "again.py").write_text((tmp_path / "train.py").read_text())
    asked("diagnose", tmp_path)
    assert "is_trainable" not in capsys.readouterr().out


def stale(values: Sequence[float]) -> list[Row]:
    rng = np.random.default_rng(3)
    return [
        {"step": k, "ppo_actor/task_reward/avg": 0.4 + 0.001 * k + 0.01 * rng.normal(),
         "ppo_actor/update/grad_norm": 0.2 + 0.01 * rng.normal(),
         "ppo_actor/version_stats/sample_staleness_theta_max": float(value)}
        for k, value in enumerate(values)
    ]  # fmt: skip


def test_staleness_that_grows(tmp_path: Path) -> None:
    """As in AReaL #1388; a queue that fills in the first rows, and a bound that is held, are left alone."""
    grown = [2.0] * 80 + [2.0 + k // 5 for k in range(80)]
    (first,) = present(log(tmp_path / "a.jsonl", stale(grown)))
    assert (first.fault, first.grade, first.onset) == ("growing lag", "warning", 85)
    assert "is 2 in the median row of the first quarter, 13.5 in that of the last" in first.because
    assert "max_head_offpolicyness" in first.remedy
    names = {"reward": "ppo_actor/task_reward/avg", "grad_norm": "ppo_actor/update/grad_norm",
             "staleness/max": "ppo_actor/version_stats/sample_staleness_theta_max"}  # fmt: skip
    assert false_claims(tmp_path / "a.jsonl", names) == []
    for sound in ([2.0] * 160, [min(8.0, k / 4) for k in range(160)], [2.0, 3.0] * 80):
        assert present(log(tmp_path / "b.jsonl", stale(sound))) == []


def test_staleness_is_held_beside_the_bound_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bound that is beyond what was logged is not said to be out of force."""
    log(tmp_path / "log.jsonl", stale([2.0] * 80 + [2.0 + k // 5 for k in range(80)]))
    for bound in (2, 40):
        (tmp_path / "config.yaml").write_text(
            f"gconfig:\n  n_samples: 8\nactor:\n  path: model\nrollout:\n  max_head_offpolicyness: {bound}\n"
        )
        asked("diagnose", tmp_path)
        said = " ".join(capsys.readouterr().out.split())
        clause = f"rollout.max_head_offpolicyness of config.yaml is {bound}, so that this bound is not in force"
        assert (clause in said) == (bound == 2)


def of_groups(size: int, dead: float, seed: int = 0) -> list[Row]:
    """Rows of rewards of 0 and 1, right at a chance of 0.18, in batches of 8 groups."""
    rng, n = np.random.default_rng(seed), 8 * size

    def change(k: int, row: Row) -> None:
        mean = float(np.clip(rng.binomial(n, 0.18), 1, n - 1)) / n
        row.update(reward=mean, reward_std=float(np.sqrt(mean * (1 - mean) * n / (n - 1))))
        row.update({"frac_reward_zero_std": rng.binomial(8, dead) / 8, "rewards/right/mean": mean,
                    "rewards/right/std": row["reward_std"]})  # fmt: skip

    return rows(seed, change)


def test_groups_that_are_dead_by_their_size(tmp_path: Path) -> None:
    """As in CoursIA #10603; where chance is a small part of it, size is not what is named."""
    (tmp_path / "two").mkdir()
    log(tmp_path / "two" / "log.jsonl", of_groups(2, 0.7))
    (tmp_path / "two" / "config.yaml").write_text("num_generations: 2\nlearning_rate: 1.0e-6\n")
    document = asked("diagnose", tmp_path / "two")[1]
    (starved,) = [f for f in document["findings"] if f["fault"] == "starved"]
    assert "of groups of 2 have equal rewards, and" in starved["because"]
    assert starved["remedy"].startswith("draw 8 rollouts per prompt in place of 2")
    (tmp_path / "eight").mkdir()
    log(tmp_path / "eight" / "log.jsonl", of_groups(8, 0.7))
    (tmp_path / "eight" / "config.yaml").write_text("num_generations: 8\nlearning_rate: 1.0e-6\n")
    (starved,) = [f for f in asked("diagnose", tmp_path / "eight")[1]["findings"] if f["fault"] == "starved"]
    assert "of groups of" not in starved["because"]


def test_a_flat_reward_beside_a_held_out_rise_is_learning(tmp_path: Path) -> None:
    """As in prime-rl #1211: prompts that are solved are no longer drawn."""

    def change(k: int, row: Row) -> None:
        row["reward"] = 0.5 + 0.01 * np.sin(k)
        if k % 10 == 0:
            row["eval/math500/accuracy"] = 0.3 + 0.2 * k / 160

    assert "no learning" not in [f.fault for f in present(log(tmp_path / "a.jsonl", rows(2, change)))]


def test_a_schedule_that_ends_after_a_part_of_the_run(tmp_path: Path) -> None:
    """As in SkyRL #873: four updates on a batch, and a quarter of the rows."""
    made = [{"trainer/global_step": k + 1, "reward/avg_raw_reward": 0.4, "policy/raw_grad_norm": 0.2,
             "policy/policy_lr": max(0.0, 1e-6 * (1 - k / 40))} for k in range(160)]  # fmt: skip
    for part, words in ((64, True), (256, False)):
        folder = tmp_path / str(part)
        folder.mkdir()
        log(folder / "metrics.jsonl", made)
        (folder / "config.yaml").write_text(
            "trainer:\n  train_batch_size: 256\n  update_epochs_per_batch: 1\n  policy_mini_batch_size: "
            f"{part}\n  policy:\n    optimizer_config:\n      lr: 1.0e-6\ngenerator:\n  n_samples_per_prompt: 5\n"
        )
        found = next(f for f in asked("diagnose", folder)[1]["findings"] if f["fault"] == "zero learning rate")
        assert ("each batch has 4 updates, and the rate ends after 1/4" in found["because"]) == words


def test_a_rate_that_is_spent_long_before_the_end(tmp_path: Path) -> None:
    """As in open-instruct #537, with a floor above 0; a tail of a cosine, and a floor of a tenth, are left alone."""

    def spent(end: int, floor: float) -> list[Row]:
        return rows(3, lambda k, row: row.update(learning_rate=1e-6 * max(floor, 1 - k / end)))

    path = log(tmp_path / "a.jsonl", spent(40, 1e-3))
    (first,) = present(path)
    assert (first.fault, first.grade, first.onset) == ("low learning rate", "warning", 41)
    assert "is 1.00e-9 at most on the last 120 of 160 rows, since step 41" in first.because
    assert false_claims(path) == []
    for sound in (spent(40, 0.1), spent(150, 1e-3)):
        assert present(log(tmp_path / "b.jsonl", sound)) == []


def answered(kind: str, copied: bool = False) -> list[dict[str, Any]]:
    """Rollouts of 40 sums; kind: "own", "other" or "form" answers of the data set beside them."""
    rng, made = np.random.default_rng(4), []
    for step in range(8):
        for _ in range(5):
            a, b = (int(x) for x in rng.integers(100, 500, 2))
            due = {"own": str(a + b), "other": str(int(rng.integers(1000, 2000))), "form": f"{a + b} apples"}[kind]
            prompt = f"What is {a} + {b}?" + (f" Not {due}." if copied else "")
            for _ in range(6):
                said = a + b if rng.random() < 0.8 else a + b + int(rng.integers(1, 9))
                made.append({"step": step + 1, "prompt": prompt, "completion": f"So it is \\boxed{{{said}}}.",
                             "ground_truth": due, "reward": float(str(said) == due)})  # fmt: skip
    return made


def lines(path: Path, made: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def rollouts(path: Path) -> tuple[Rollout, ...]:
    run: Run = read(path)
    return tuple(row for step in run.rollouts for row in run.rollouts[step])


def test_answers_of_other_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in open-instruct #1484 and genesys #56: the rollouts agree on another answer, which is not paid."""
    finding = right_answers.unpaid(rollouts(lines(tmp_path / "a.jsonl", answered("other"))))
    assert finding is not None
    assert "whose rollouts agree on an answer it is another than the data set's" in finding.because
    assert "word for word" not in finding.because
    copied = right_answers.unpaid(rollouts(lines(tmp_path / "c.jsonl", answered("other", copied=True))))
    assert copied is not None
    assert "stands word for word in the prompt" in copied.because
    for kind in ("own", "form"):
        assert right_answers.unpaid(rollouts(lines(tmp_path / f"{kind}.jsonl", answered(kind)))) is None
    within = [row | {"reward_model": {"style": "rule", "ground_truth": row["ground_truth"]}, "ground_truth": None}
              for row in answered("other")]  # fmt: skip
    assert right_answers.unpaid(rollouts(lines(tmp_path / "within.jsonl", within))) is not None
    status, _ = asked("rewards", tmp_path / "a.jsonl")
    assert status == 0
    assert "rollouts agree on another answer than the data set's" in capsys.readouterr().out


def paid(weight: float) -> list[dict[str, Any]]:
    rng, made = np.random.default_rng(6), []
    for step in range(1, 13):
        for g in range(4):
            for _ in range(8):
                right, short = float(rng.random() < 0.5), float(rng.random())
                made.append({"step": step, "group": f"{step}-{g}", "accuracy_reward": right, "len_reward": short - 0.5,
                             "reward": weight * right + short - 0.5})  # fmt: skip
    return made


def test_wrong_answers_that_are_paid_more(tmp_path: Path) -> None:
    """As in open-r1 #360; an answer that is worth more than the rest can take is left alone."""
    document = asked("rewards", lines(tmp_path / "a.jsonl", paid(0.3)))[1]
    assert "the wrong one is paid more, most by len_reward" in document["because"]
    assert document["do"].startswith("pay what is beside the answer to right answers alone")
    assert "paid more" not in asked("rewards", lines(tmp_path / "b.jsonl", paid(1.2)))[1].get("because", "")


def begun(first: Sequence[int], text: str = "") -> tuple[Rollout, ...]:
    rng = np.random.default_rng(1)
    return tuple(
        Rollout(where=f"line {k}", step=1, prompt=text.format(k) or None,
                prompt_ids=np.array([*first, *rng.integers(20, 90, 5 + k)]) if first else None)
        for k in range(12)
    )  # fmt: skip


def faults_of(rows: tuple[Rollout, ...]) -> list[str]:
    return [f.fault for f in tokens.PROOF.check(PipelineEvidence("here", "", rows)) if f.present]


def test_prompts_that_are_encoded_twice() -> None:
    """As in TRL #3853; one beginning, padding and a template are left alone."""
    assert faults_of(begun([1, 1])) == ["inputs differ"]
    assert faults_of(begun([], "<s><s>[INST] {} [/INST]")) == ["inputs differ"]
    assert faults_of(begun([], "<|im_start|>user\n<|im_start|>user\n{}<|im_end|>")) == ["inputs differ"]
    for first in ([1], [0, 0, 0], [1, 2]):
        assert faults_of(begun(first)) == []
    assert faults_of(begun([], "<|im_start|>user\n{}<|im_end|>")) == []


def turned(kind: str) -> tuple[Rollout, ...]:
    """Groups of 4 trajectories of two turns; kind: whose advantages their turns have."""
    rng, made = np.random.default_rng(2), []
    for g in range(12):
        rewards = rng.permutation([1.0, 0.0, 0.0, 1.0])
        own = (rewards - rewards.mean()) / rewards.std(ddof=1)
        for k, reward in enumerate(rewards):
            turns = np.repeat([0, 1], [5, 4])
            each = {"last": [own[3], own[2]], "own": [own[k], 0.5 * own[k]], "none": [0.0, 0.0]}[kind]
            made.append(Rollout(where=f"line {len(made)}", step=1, group=str(g), named=True, reward=float(reward),
                                advantages=np.array(each)[turns], turns=turns, mask=np.ones(9, bool)))  # fmt: skip
    return tuple(made)


def test_one_advantage_for_all_siblings() -> None:
    """As in rllm #511; credit of turns is left alone."""

    def told(kind: str) -> list[str]:
        evidence = PipelineEvidence("here", "", turned(kind))
        return [f.because for f in advantages.PROOF.check(evidence) if f.present and f.fault == "misplaced rewards"]

    (because,) = told("last")
    assert because.startswith("in 24 of 24 turns of groups whose rewards differ all siblings have one advantage: none")
    assert told("own") == []
    assert told("none") == []
    evidence = PipelineEvidence("here", "", tuple(replace(row, turns=None, advantages=row.advantages[-1:])
                                                  for row in turned("last") if row.advantages is not None))  # fmt: skip
    (because,) = [f.because for f in advantages.PROOF.check(evidence) if f.present and f.fault == "misplaced rewards"]
    assert because.startswith("in 12 of 12 groups")
