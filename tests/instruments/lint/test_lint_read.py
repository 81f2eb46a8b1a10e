"""Settings are found in whatever holds them, and nothing in a file is run."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path

import pytest

from grposcope.core import yaml_files
from grposcope.core.errors import UserError
from grposcope.faults.judge_settings import UNREAD, lint
from grposcope.instruments.lint import shell_script
from grposcope.instruments.lint.read import read
from grposcope.instruments.lint.shell_script import parse
from grposcope.signs.settings.names import by_our_names, group_size
from grposcope.signs.settings.recipe import has_adapters, interval

SCRIPT = """
import os
os.system("touch RAN")
from trl import GRPOConfig, GRPOTrainer
LENGTH = 1024
PROMPT = 256
twice = 1
twice = 2
rewards = [accuracy, brevity]
args = GRPOConfig(
    output_dir="out",
    num_generations=4,
    learning_rate=-1e-6 * -2,
    max_completion_length=LENGTH - PROMPT,
    per_device_train_batch_size=twice,
    reward_weights=[1.0, 0.5],
    beta=float(os.environ["BETA"]),
)
trainer = GRPOTrainer(model=m, args=args, reward_funcs=rewards, peft_config=LoraConfig())
"""


def test_a_call_is_read_without_running_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    config = read(tmp_path / "train.py")
    assert not (tmp_path / "RAN").exists()
    assert config.dialect.name == "trl"
    assert group_size(config) == 4
    assert config.lines["num_generations"] == 12
    assert config.number("learning_rate") == 2e-6
    assert config.get("max_completion_length") == 768
    assert config.opaque == {"beta", "per_device_train_batch_size"}
    assert config.get("beta") is None  # no default is assumed for what the file sets
    assert config.get("epsilon") == 0.2
    assert config.reward_functions == 2
    assert config.adapters is True


def test_several_calls_ask_which(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text("a = GRPOConfig(num_generations=4)\nb = GRPOConfig(num_generations=2)\n")
    with pytest.raises(UserError, match=r"2 sets of settings, in line 1 and line 2; give one of them, such as .*#1"):
        read(path)
    assert group_size(read(path, 2)) == 2
    with pytest.raises(UserError, match="no #3"):
        read(path, 3)


def test_what_double_stars_add_takes_all_defaults_away(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("GRPOConfig(num_generations=4, **common)\n")
    config = read(path)
    assert group_size(config) == 4
    assert config.get("temperature") is None
    assert "no default is assumed" in config.notes[0]


def test_a_dict_and_a_notebook(tmp_path: Path) -> None:
    path = tmp_path / "settings.py"
    path.write_text("SETTINGS = {'num_generations': 6, 'loss_type': 'grpo'}\n")
    assert group_size(read(path)) == 6
    cells = [
        {"cell_type": "markdown", "source": "words"},
        {"cell_type": "code", "source": ["!pip install trl\n", "n = 5\n"]},
        {"cell_type": "code", "source": ["%%bash\n", "echo"]},
        {"cell_type": "code", "source": "c = RLOOConfig(num_generations=n)"},
    ]
    (tmp_path / "book.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    config = read(tmp_path / "book.ipynb")
    assert group_size(config) == 5
    assert config.get("scale_rewards") is None  # RLOO divides by nothing


VERL = """#!/bin/bash
# actor_rollout_ref.rollout.n=99 in a comment
export N=${N:-5}
GPUS=8
OLD=1
OLD=$1
ARGS="
    algorithm.use_kl_in_reward=False \\
    algorithm.lam=0.9"
LIST=(
    data.max_prompt_length=100
    data.max_response_length=$((GPUS * 100))
)
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    # data.train_batch_size=1 \\
    data.train_batch_size=64 \\
    data.train_files="$HOME/x.parquet" \\
    +actor_rollout_ref.rollout.n=$N \\
    actor_rollout_ref.actor.optim.lr=1e-6 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=$OLD \\
    trainer.logger='["console","wandb"]' \\
    trainer.n_gpus_per_node=$GPUS $ARGS "${LIST[@]}" $@
"""


def test_overrides_in_a_script(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(VERL)
    config = read(path)
    assert config.dialect.name == "verl"
    assert group_size(config) == 5
    assert config.whole("data.train_batch_size") == 64
    assert config.whole("data.max_prompt_length") == 100
    assert config.whole("data.max_response_length") == 800
    assert config.get("algorithm.lam") == 0.9
    assert config.get("trainer.logger") == ["console", "wandb"]
    assert config.number("actor_rollout_ref.actor.optim.lr") == 1e-6
    assert "actor_rollout_ref.actor.ppo_mini_batch_size" in config.opaque
    assert by_our_names(config)["kl"] == 0.0
    assert not config.partial


def test_a_variable_that_may_hold_anything_takes_all_defaults_away(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("#!/bin/sh\nverl algorithm.adv_estimator=grpo $EXTRA\n")
    config = read(path)
    assert config.partial
    assert group_size(config) is None


@pytest.mark.parametrize(
    "before",
    [
        "mkdir -p $SAVE_DIR",
        'echo "to $OUT"; ls $OUT',
        "python -m tools.serve --host $host --port $port &",
        "$PYTHON -V",
    ],
)
def test_a_variable_of_another_command_takes_no_default_away(before: str, tmp_path: Path) -> None:
    script = f"{before}\n$PYTHON -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8\n"
    (tmp_path / "run.sh").write_text(script)
    assert not read(tmp_path / "run.sh").partial


def test_a_variable_after_a_flag_is_its_value(tmp_path: Path) -> None:
    command = "swift rlhf --rlhf_type grpo --num_generations 8 --output_dir $OUT"
    (tmp_path / "run.sh").write_text(command + "\n")
    assert not read(tmp_path / "run.sh").partial
    (tmp_path / "run.sh").write_text(f"{command} $MORE\n")
    assert read(tmp_path / "run.sh").partial


def test_flags_of_a_script_and_of_its_docstring(tmp_path: Path) -> None:
    flags = "--num_generations 8 --learning-rate=1e-5 --use_peft --lora_target_modules a b"
    command = f"accelerate launch grpo.py \\\n  {flags}\n"
    (tmp_path / "run.sh").write_text("#!/bin/sh\n" + command)
    (tmp_path / "grpo.py").write_text(f'"""\nRun:\n\n{command}"""\nparser.parse()\n')
    for name in ("run.sh", "grpo.py"):
        config = read(tmp_path / name)
        assert group_size(config) == 8
        assert config.number("learning_rate") == 1e-5
        assert config.adapters is True
        assert config.get("lora_target_modules") == ["a", "b"]


def test_yaml_json_and_saved_configurations(tmp_path: Path) -> None:
    (tmp_path / "trl.yaml").write_text("num_generations: 16\nlearning_rate: 1e-6\nreward_funcs: [a, b]\n")
    config = read(tmp_path / "trl.yaml")
    assert (group_size(config), config.number("learning_rate"), config.reward_functions) == (16, 1e-6, 2)
    assert config.lines["learning_rate"] == 2

    (tmp_path / "config.yaml").write_text(
        "_wandb: {value: {}}\nnum_generations: {desc: null, value: 4}\nbeta: {value: 0.1}\n"
    )
    assert by_our_names(read(tmp_path / "config.yaml"))["kl"] == 0.1

    record = {
        "format": 3,
        "engine": "trl",
        "settings": {},
        "resolved": {"logged": {"num_generations": 3, "loss_type": "x"}},
    }
    (tmp_path / "config.json").write_text(json.dumps(record))
    assert group_size(read(tmp_path / "config.json")) == 3

    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text(
        "- algorithm.adv_estimator=grpo\n- actor_rollout_ref.rollout.n=7\n"
    )
    assert group_size(read(tmp_path / ".hydra" / "overrides.yaml")) == 7

    resolved = (
        "algorithm: {adv_estimator: grpo}\nactor_rollout_ref: {rollout: {n: '${many}', temperature: 1}}\nmany: 9\n"
    )
    (tmp_path / ".hydra" / "config.yaml").write_text(resolved)
    assert group_size(read(tmp_path)) == 9  # the folder's most telling file


def test_a_yaml_file_builds_on_another(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "grpo: {num_generations_per_prompt: 16, normalize_rewards: true}\npolicy: {a: 1}\n"
    )
    (tmp_path / "own.yaml").write_text("defaults: base.yaml\ngrpo: {normalize_rewards: false}\npolicy: {b: 2}\n")
    config = read(tmp_path / "own.yaml")
    assert group_size(config) == 16
    assert config.get("grpo.normalize_rewards") is False


def test_what_hydra_composes_may_say_more(tmp_path: Path) -> None:
    text = "defaults: [ppo_trainer, _self_]\nalgorithm: {adv_estimator: grpo}\nactor_rollout_ref: {rollout: {n: 4}}\n"
    (tmp_path / "own.yaml").write_text(text)
    config = read(tmp_path / "own.yaml")
    assert group_size(config) == 4
    assert config.partial


def test_pickles_are_refused_unopened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return Path.touch, (tmp_path / "RAN",)

    (tmp_path / "training_args.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match=r"pickle.*not opened; give the YAML file or script"):
        read(tmp_path / "training_args.bin")
    assert not (tmp_path / "RAN").exists()


def test_a_trainer_state_says_how_little_it_holds(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": [], "train_batch_size": 4}))
    config = read(tmp_path / "trainer_state.json")
    assert config.get("per_device_train_batch_size") == 4
    assert group_size(config) is None
    assert "training_args.bin, a pickle that is not opened" in config.notes[0]
    findings = lint(config)
    unread = {finding.fault for finding in findings if finding.because == UNREAD}
    assert {"reward weights", "missing reference", "coarse weights"} <= unread, "no defaults are judged"
    assert unread.isdisjoint(finding.fault for finding in findings if finding.status == "excluded")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "num_generations: 4\nnum_generations: 8\n", "line 2: num_generations is given twice, first in line"),
        ("a.yaml", "num_generations: [4\n", "line 2: not valid YAML"),
        ("a.yaml", "- 1\n- 2\n", "not a mapping of settings"),
        ("a.yaml", "model: x\n", "no settings of a known trainer"),
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[]", "not an object of settings"),
        ("a.py", "def f(:\n", "line 1: not valid Python"),
        ("a.py", "x = 1\n", "no call of GRPOConfig"),
        ("a.ipynb", "{}", "not a notebook"),
        ("a.sh", "echo 'x\n", "line 1: a quote is opened there and not closed"),
        ("a.sh", "echo x\n", "no settings of a known trainer"),
        ("a.yaml", "!!python/object/apply:os.system ['touch RAN']\n", "not valid YAML"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        read(tmp_path / name)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_files_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no"):
        read(tmp_path / "nowhere.yaml")
    with pytest.raises(UserError, match="give the file with the settings itself"):
        read(tmp_path)


def test_aliases_that_repeat_without_end_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}" for i in range(1, 40)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    with pytest.raises(UserError, match="stand for over 500,000 values"):
        read(tmp_path / "bomb.yaml")


def test_numbers_of_yaml_are_those_of_version_1_2(tmp_path: Path) -> None:
    content = yaml_files.parse("a: 1e-6\nb: 1.5E3\nc: 12e03\nd: e3\ne: 1_0\nf: 0x1e\n", tmp_path).content
    assert content == {"a": 1e-6, "b": 1500.0, "c": 12000.0, "d": "e3", "e": 10, "f": 30}


@pytest.mark.parametrize(
    ("word", "meant"), [("1e-6", 1e-6), ("-3", -3), ("True", True), ("null", None), ("[1,2]", [1, 2]), ("x y", "x y"),
                        ("__import__('os')", "__import__('os')"), ("2**99999", "2**99999")],
)  # fmt: skip
def test_words_of_a_shell_stand_for_values(word: str, meant: object) -> None:
    assert parse(word) == meant


SLIME = """
ray job submit -- python3 {script} --hf-checkpoint /root/Qwen3-4B --rm-type deepscaler --rollout-batch-size 32 \\
   --n-samples-per-prompt 4 --rollout-temperature 0.8 --global-batch-size 64 --lr 1e-6 {more}
"""
SWIFT = "swift rlhf --rlhf_type grpo --model m --num_generations 4 --learning_rate 1e-6 {more}\n"
SKYRL = """
uv run -m skyrl.train.entrypoints.main_base trainer.algorithm.advantage_estimator="grpo" \\
  trainer.policy.optimizer_config.lr=1.0e-6 trainer.train_batch_size=1024 trainer.policy_mini_batch_size=256 \\
  generator.n_samples_per_prompt=4 generator.sampling_params.temperature=0.8 {more}
"""
OPENRLHF = """
ARGS=(
   --rollout.batch_size 128
   --rollout.n_samples_per_prompt 4
   # --rollout.temperature 2.0
   --rollout.temperature 0.8
   --train.batch_size 256
   --actor.adam.lr 1e-6
   --algo.advantage.estimator group_norm {more}
)
python -m openrlhf.cli.train_ppo_ray --ckpt.output_dir ${{SAVE_PATH}} ${{ARGS[@]}}
"""
OPENRLHF_BEFORE = """
python3 -m openrlhf.cli.train_ppo_ray --vllm_num_engines 2 --rollout_batch_size 128 --n_samples_per_prompt 4 \\
   --train_batch_size 256 --temperature 0.8 --actor_learning_rate 1e-6 --advantage_estimator group_norm {more}
"""
PRIME_RL = """
max_steps = 20
[orchestrator]
batch_size = 128
{key} = 4
[orchestrator.{sampling}]
temperature = 0.8
[trainer.optim]
lr = 1e-6
{more}
"""


@pytest.mark.parametrize(
    ("file", "text", "trainer"),
    [
        ("run.sh", SLIME.format(script="train.py", more=""), "slime"),
        ("run.sh", SWIFT.format(more="--temperature 0.8"), "ms-swift"),
        ("run.sh", SKYRL.format(more=""), "skyrl"),
        ("run.sh", OPENRLHF.format(more=""), "openrlhf"),
        ("run.sh", OPENRLHF_BEFORE.format(more=""), "openrlhf"),
        ("rl.toml", PRIME_RL.format(key="group_size", sampling="train.sampling", more=""), "prime-rl"),
        ("rl.toml", PRIME_RL.format(key="rollouts_per_example", sampling="sampling", more=""), "prime-rl"),
    ],
)
def test_other_trainers_settings_are_read_by_their_own_names(
    tmp_path: Path, file: str, text: str, trainer: str
) -> None:
    (tmp_path / file).write_text(text)
    config = read(tmp_path / file)
    ours = by_our_names(config)
    assert (config.dialect.name, ours["group"], ours["lr"], ours["temperature"]) == (trainer, 4, 1e-6, 0.8)
    word = "0.8" if trainer != "ms-swift" else "0.8\n"
    (tmp_path / file).write_text(text.replace(word, word.replace("0.8", "0.0")))
    assert [finding.fault for finding in lint(read(tmp_path / file)) if finding.present][:1] == ["greedy sampling"]


@pytest.mark.parametrize(
    ("file", "text", "adapters"),
    [
        ("run.sh", SWIFT.format(more=""), True),
        ("run.sh", SWIFT.format(more="--tuner_type full"), False),
        ("run.sh", SWIFT.format(more="--train_type full"), False),
        ("run.sh", SKYRL.format(more=""), False),
        ("run.sh", SKYRL.format(more="trainer.policy.model.lora.rank=32"), True),
        ("run.sh", OPENRLHF.format(more=""), False),
        ("run.sh", OPENRLHF.format(more="--ds.lora.rank 32"), True),
        ("run.sh", OPENRLHF_BEFORE.format(more="--lora_rank 32"), True),
        ("rl.toml", PRIME_RL.format(key="group_size", sampling="sampling", more=""), False),
        (
            "rl.toml",
            PRIME_RL.format(key="group_size", sampling="sampling", more="[trainer.model.lora]\nrank = 8"),
            True,
        ),
    ],
)
def test_a_rate_for_all_weights_is_wrong_for_adapters_alone(
    tmp_path: Path, file: str, text: str, adapters: bool
) -> None:
    (tmp_path / file).write_text(text)
    config = read(tmp_path / file)
    assert has_adapters(config) is adapters
    assert ("low learning rate" in {f.fault for f in lint(config) if f.present}) is adapters


def test_asynchronous_rollouts_of_slime_want_a_correction(tmp_path: Path) -> None:
    def faults(text: str) -> set[str]:
        (tmp_path / "run.sh").write_text(text)
        return {finding.fault for finding in lint(read(tmp_path / "run.sh")) if finding.present}

    assert "stale sampler" in faults(SLIME.format(script="train_async.py", more=""))
    for flag in ("--use-tis", "--use-rollout-logprobs", "--keep-old-actor"):
        assert "stale sampler" not in faults(SLIME.format(script="train_async.py", more=flag))
    assert "stale sampler" not in faults(SLIME.format(script="train.py", more=""))


def test_steps_on_a_batch_of_other_trainers(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(SLIME.format(script="train.py", more=""))
    assert interval(read(tmp_path / "run.sh"), None) == 32 * 4 // 64
    (tmp_path / "run.sh").write_text(SKYRL.format(more="trainer.update_epochs_per_batch=2"))
    assert interval(read(tmp_path / "run.sh"), None) == 8


def test_toml_that_is_none_is_refused_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "rl.toml").write_text("[orchestrator\n")
    with pytest.raises(UserError, match=r"not valid TOML .*line 1"):
        read(tmp_path / "rl.toml")


@pytest.mark.parametrize("text", [OPENRLHF, OPENRLHF_BEFORE], ids=["with dots", "before"])
def test_settings_of_openrlhf(text: str, tmp_path: Path) -> None:
    """How often a batch is used, and whether rollouts of a prompt are compared at all."""
    (tmp_path / "run.sh").write_text(text.format(more=""))
    config = read(tmp_path / "run.sh")
    assert not config.partial
    assert interval(config, None) == 128 * 4 // 256
    alone = text.format(more="").replace("n_samples_per_prompt 4", "n_samples_per_prompt 1")
    for estimator, present in (("group_norm", True), ("gae", False)):
        (tmp_path / "run.sh").write_text(alone.replace("group_norm", estimator))
        faults = {finding.fault for finding in lint(read(tmp_path / "run.sh")) if finding.present}
        assert ("group of one" in faults) == present


def test_the_group_of_a_fork_of_verl(tmp_path: Path) -> None:
    """Search-R1 repeats prompts by `n_agent`, and leaves `n` at 1."""
    text = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n_agent=5\n"
    (tmp_path / "run.sh").write_text(text)
    assert group_size(read(tmp_path / "run.sh")) == 5


@pytest.mark.parametrize("text", ["train " + "a" * 3_000_000, 'echo "\n' + "it's a line\n" * 100_000, "x=1 " * 700_000])
def test_a_text_without_end_is_no_script(text: str, tmp_path: Path) -> None:
    began = time.process_time()
    with pytest.raises(UserError, match="no command that ends; give the script that starts the run"):
        shell_script.read(tmp_path / "run.sh", text)
    assert time.process_time() - began < 10


@pytest.mark.parametrize(("dropout", "told"), [("0.1", True), ("0.0", False), ("p", False)])
def test_dropout_of_adapters_is_read_off_a_script(tmp_path: Path, dropout: str, told: bool) -> None:
    """As in TRL #3234: of the LoraConfig beside the settings, where it is a number."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("LoraConfig()", f"LoraConfig(r=8, lora_dropout={dropout})"))
    settings = read(path)
    assert ("adapter dropout" in (settings.script or {})) == told
