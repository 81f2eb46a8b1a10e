"""Keys that the readers claim for an engine, against the source of the engine's package at a pinned version.

The wheel alone is downloaded, without what it depends on, and read as text: names are its string literals, keyword
arguments and f-strings. A key is there if it is a name, or an f-string filled with names, perhaps behind a prefix or
before a suffix that the engine adds when it runs (`Engine.around`). What the engine logs of rewards, lengths, entropy,
KL, mismatch, staleness, clipping, gradients and rates and no metric of ours is made of is listed in engine_keys.json,
so that a key that a version adds or renames is seen: `python tests/contract/test_engine_packages.py` writes the list.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from grposcope.core.run import Floats
from grposcope.logs.trainers import TRAINERS
from grposcope.logs.trainers.held_version import HELD
from grposcope.logs.trainers.trainer import Trainer

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".engine-sources"
UNMAPPED = HERE / "engine_keys.json"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Engine:
    """trainer: of TRAINERS. source: folder in the wheel. files: globs of the files that log. around: (prefix, suffix)
    that the engine puts around a name. elsewhere: keys that are not in this version -> where they are from.
    python: version and, where the wheel is for one machine, its tags."""

    trainer: str
    package: str
    version: str
    source: str
    files: tuple[str, ...]
    around: tuple[tuple[str, str], ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    python: tuple[str, ...] = ("--python-version", "3.12")


VERSION = {held.package: held.version for held in HELD}

OF_TRL = "TRL, whose trainer it is made of"
OF_TRANSFORMERS = "transformers"
BEFORE = "earlier versions"
OF_VERL = "verl, by which it trains"
LATER = "later versions, of the package skyrl"
SECTIONS = "versions with sections"
BARE = "loggers that drop train/"

ENGINES = {one.package: one for one in (
    Engine(
        "ms-swift", "ms-swift", VERSION["ms-swift"], "swift",
        ("rlhf_trainers/grpo*.py", "rlhf_trainers/rollout_mixin.py"),
        elsewhere={
            "completions/mean_terminated_length": OF_TRL, "policy_loss": OF_TRL, "num_tokens": OF_TRL,
            "step_time": OF_TRL, "sample/staleness_mean": OF_TRL, "sample/staleness_max": OF_TRL,
            "completion_length": OF_TRL, "Training Loss": OF_TRANSFORMERS,
        } | {f"tools/{name}": OF_TRL for name in ("call_frequency", "failure_frequency", "latency_s",
                                                  "loop_exhausted_frac")},
    ),
    Engine(
        "openrlhf", "openrlhf", VERSION["openrlhf"], "openrlhf-0.11.2.data/purelib/openrlhf",
        ("trainer/ppo_trainer*.py", "trainer/ray/*.py", "trainer/ppo_utils/*.py"), around=(("timing/", ""),),
        python=("--python-version", "3.11", "--abi", "cp311", "--platform", "manylinux1_x86_64"),
    ),
    Engine(
        "areal", "areal", VERSION["areal"], "areal", ("trainer/ppo/*.py", "trainer/rl_trainer.py"),
        around=tuple(
            (prefix, suffix) for prefix in ("ppo_actor/update/", "ppo_actor/", "ppo_actor/update/version_stats/",
                                            "ppo_actor/version_stats/", "version_stats/", "rollout/", "timeperf/", "")
            for suffix in ("/avg", "/total", "")
        ),
    ),
    Engine(
        "skyrl", "skyrl", VERSION["skyrl"], "skyrl",
        ("train/trainer.py", "train/fully_async_trainer.py", "train/evaluate.py", "train/generators/utils.py",
         "train/utils/trainer_utils.py", "backends/skyrl_train/workers/worker.py", "backends/skyrl_train/utils/*.py"),
        around=(("policy/", ""), ("policy/loss_metrics/", ""), ("timing/", "")),
        elsewhere={"policy/ppo_clip_ratio": BEFORE, "policy/raw_grad_norm": BEFORE},
    ),
    Engine(
        "skyrl", "skyrl-train", VERSION["skyrl-train"], "skyrl_train",
        ("trainer.py", "fully_async_trainer.py", "evaluate.py", "generators/utils.py", "workers/worker.py"),
        around=(("policy/", ""), ("timing/", "")),
        elsewhere=dict.fromkeys(
            (*(f"policy/loss_metrics/{name}_ratio" for name in (
                "clip", "geo_sequence_mask_masked", "outlier_seq_masked", "product_sequence_mask_masked",
                "tis_seq_clip_high", "tis_token_clip_high", "token_mask",
            )), *(f"policy/{which}_logprobs_abs_diff_{what}" for which in ("minibatch_rollout", "rollout_train")
                  for what in ("max", "mean")),
             "async/keep_rate", "generate/trajectory_time_env_mean", "environment/num_turns",
             "generate/avg_assistant_tokens", "generate/tokens_per_turn_mean"), LATER,
        ),
    ),
    Engine(
        "tinker", "tinker-cookbook", VERSION["tinker-cookbook"], "tinker_cookbook", ("rl/*.py",),
        around=(("env/all/", ""),),
    ),
    Engine(
        "art", "openpipe-art", VERSION["openpipe-art"], "art",
        ("model.py", "metrics*.py", "tinker_native/*.py", "unsloth/*.py", "pipeline_trainer/trainer.py",
         "local/backend.py"),
        around=(("train/", ""), ("loss/", "")), elsewhere={"reward/mean": SECTIONS, "steps_off_policy": BEFORE},
    ),
    Engine(
        "verifiers", "verifiers", VERSION["verifiers"], "verifiers", ("rl/trainer/*.py",),
        elsewhere=dict.fromkeys(("epoch", "grad_norm", "learning_rate", "loss"), OF_TRANSFORMERS),
    ),
    Engine(
        "twinkle", "twinkle-kit", VERSION["twinkle-kit"], "twinkle", ("metric/*.py",), around=(("train/", ""),),
        elsewhere={"train/frac_reward_zero_std": "what a script of one's own logs"} |
        dict.fromkeys(("approx_kl", "clip_ratio", "clip_ratio_high", "clip_ratio_low", "completion_length", "entropy",
                       "frac_reward_zero_std", "total_reward", "total_reward_std"), BARE),
    ),
    Engine(
        "verl", "verl", VERSION["verl"], "verl",
        ("trainer/ppo/metric_utils.py", "trainer/ppo/rollout_corr_helper.py", "trainer/ppo/ray_trainer.py",
         "trainer/ppo/core_algos.py", "workers/utils/losses.py"),
        around=(("actor/", ""), ("timing_s/", "")),
        elsewhere={"agent/tool_call_mean": "DeepEyes, whose agents train by verl"},
    ),
    Engine(
        "trl", "trl", VERSION["trl"], "trl", ("trainer/grpo_trainer.py", "trainer/rloo_trainer.py"),
        elsewhere={
            "Training Loss": OF_TRANSFORMERS, "epoch": OF_TRANSFORMERS, "clip_ratio": BEFORE,
            "completion_length": BEFORE,
        },
    ),
    Engine(
        "agent-lightning", "agentlightning", VERSION["agentlightning"], "agentlightning", ("verl/*.py",),
        elsewhere=dict.fromkeys({key for keys in TRAINERS["verl"].keys.values() for key in keys} - {
            "actor/pg_clipfrac", "actor/pg_clipfrac_lower", "actor/ppo_kl", "prompt_length/mean", "response_length/max",
            "response_length/mean",
        }, OF_VERL),
    ),
    Engine(
        "trinity", "trinity-rft", VERSION["trinity-rft"], "trinity",
        ("trainer/verl/*.py", "trainer/trainer.py", "explorer/*.py", "algorithm/**/*.py"),
        around=(("actor/", ""), ("rollout/", "/mean")),
    ),
    Engine(
        "cosmos-rl", "cosmos-rl", VERSION["cosmos-rl"], "cosmos_rl",
        ("policy/trainer/llm_trainer/grpo_trainer.py", "dispatcher/status.py", "colocated/controller.py"),
        around=(("train/", ""),),
        elsewhere=dict.fromkeys(("grad_norm", "iteration_time", "kl_loss_avg", "learning_rate", "loss_avg",
                                 "reward_max", "reward_min", "reward_std"), BARE),
    ),
)}  # fmt: skip

FAMILIES = re.compile(
    r"reward|score|pass_?at|pass@|length|_len\b|num_tokens|entropy|(^|[/_])kl|ppl|logp|mismatch|stale|off_?policy|"
    r"version|grad_norm|clip|(^|[/_])lr$|learning_rate|importance|(^|[/_])ess$|is_weight|mask.*(ratio|frac)|truncat|"
    r"no_eos|imp_weight|frac_|zero_std"
)
"""Names of the quantities that rules and instruments ask for."""

_HELD = ("append", "extend", "update", "stat", "scalar", "denominator")
"""Methods that take a metric."""


@cache
def source(package: str) -> Path:
    """The package's source; the test is skipped where it cannot be had."""
    engine = ENGINES[package]
    folder = CACHE / f"{package}-{engine.version}"
    if not (folder / engine.source).is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-q",
             "--disable-pip-version-check", *engine.python, "-d", str(folder), f"{package}=={engine.version}"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        wheels = list(folder.glob("*.whl"))
        if done.returncode or not wheels:
            pytest.skip(f"{package} {engine.version} cannot be downloaded here")
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.endswith(".py")])
    return folder / engine.source


@dataclass(frozen=True)
class Names:
    """literals: strings and keyword arguments. templates: f-strings with slashes or spaces; inner: all long ones."""

    literals: Set[str]
    templates: tuple[re.Pattern[str], ...]
    inner: tuple[re.Pattern[str], ...]

    def has(self, key: str, depth: int = 3) -> bool:
        """Whether the key is a literal, or an f-string whose blanks are again."""
        if key in self.literals:
            return True
        forms = self.templates if depth == 3 else self.inner
        matches = (match for form in forms if (match := form.fullmatch(key)))
        return depth > 0 and any(all(self.has(part, depth - 1) for part in match.groups()) for match in matches)

    def logs(self, key: str, around: Iterable[tuple[str, str]]) -> bool:
        """Whether the key is there, perhaps with a prefix and a suffix whose own parts are there."""
        for prefix, suffix in (("", ""), *around):
            if key.startswith(prefix) and key.endswith(suffix) and len(prefix) + len(suffix) < len(key):
                parts = [part for part in (prefix + suffix).split("/") if part]
                if all(self.has(part) or f"{part}/" in self.literals for part in parts) and self.has(
                    key[len(prefix) : len(key) - len(suffix)]
                ):
                    return True
        return False


def _trees(folder: Path, globs: Iterable[str]) -> Iterator[ast.AST]:
    for path in sorted({path for one in globs for path in folder.glob(one)}):
        try:
            yield ast.parse(path.read_text(errors="replace"))
        except SyntaxError:
            continue


def _text(node: ast.AST | None) -> str | None:
    """A string, with blanks as braces; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


@cache
def names(package: str) -> Names:
    """The names in a package."""
    literals: set[str] = set()
    forms: set[str] = set()
    for tree in _trees(source(package), ["**/*.py"]):
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg:
                literals.add(node.arg)
            elif (text := _text(node)) is not None and len(text) < 160 and "\n" not in text:
                (forms if isinstance(node, ast.JoinedStr) else literals).add(text)
    long = [form for form in forms if len(form.replace("{}", "")) >= 4]
    plain = {form: re.compile("(.+)".join(map(re.escape, form.split("{}")))) for form in long}
    return Names(
        literals, tuple(one for form, one in plain.items() if "/" in form or " " in form), tuple(plain.values())
    )


class Asked(dict[str, "Floats"]):
    """Columns that note which are asked for."""

    def __init__(self) -> None:
        """None is there."""
        super().__init__()
        self.keys_asked: list[str] = []

    def get(self, key: str, default: object = None) -> None:  # type: ignore[override]
        """None, and a note of the key."""
        self.keys_asked.append(key)


def claimed(trainer: Trainer) -> set[str]:
    """The keys that a reader takes for a metric, or makes one of."""
    asked = Asked()
    if trainer.made is not None:
        trainer.made(asked)
    return {key for keys in trainer.keys.values() for key in keys} | {key for key in asked.keys_asked if key != "step"}


def logged(package: str) -> set[str]:
    """Names of the families that the files of an engine which log put into a mapping or hand to a tracker."""
    found: set[str] = set()
    for tree in _trees(source(package), ENGINES[package].files):
        for node in ast.walk(tree):
            texts: list[str | None] = []
            if isinstance(node, ast.Dict):
                texts = [_text(key) for key in node.keys]
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                texts = [_text(node.slice)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _HELD:
                inner = node.func.value
                texts = [_text(inner.slice)] if isinstance(inner, ast.Subscript) else []
                texts += [one.arg for one in node.keywords]
            found |= {one for one in texts if one and re.fullmatch(r"[\w@{}/().-]{2,80}", one) and FAMILIES.search(one)}
    return found


def unmapped(package: str) -> list[str]:
    """Of these, those that no key of the reader is, or ends in."""
    trainer = TRAINERS[ENGINES[package].trainer]
    known = claimed(trainer)

    def mapped(name: str) -> bool:
        form = re.compile("(?:.+/)?" + ".+".join(map(re.escape, name.split("{}"))) + "(?:/avg|/mean)?")
        sample = name.replace("{}", "x")
        return any(form.fullmatch(key) for key in known) or trainer.metric(sample) is not None

    return sorted(name for name in logged(package) if not mapped(name))


def test_the_page_says_which_versions() -> None:
    page = (HERE.parents[1] / "docs" / "readers.md").read_text()
    for held in HELD:
        assert f"| {held.package} {held.version} | {held.when} |" in page, held
        assert ENGINES[held.package].trainer == held.trainer
        assert ENGINES[held.package].version == held.version


@pytest.mark.parametrize("package", ENGINES)
def test_the_engine_has_every_key(package: str) -> None:
    """Those that it lacks are known to be of elsewhere, and nothing is said to be that is there."""
    engine = ENGINES[package]
    found = names(package)
    lacking = {key for key in claimed(TRAINERS[engine.trainer]) if not found.logs(key, engine.around)}
    assert lacking == set(engine.elsewhere), (lacking - set(engine.elsewhere), set(engine.elsewhere) - lacking)


@pytest.mark.parametrize("package", ENGINES)
def test_no_key_is_new(package: str) -> None:
    expected = json.loads(UNMAPPED.read_text())[f"{package} {ENGINES[package].version}"]
    assert unmapped(package) == expected


@pytest.mark.parametrize(("package", "key"), [
    ("areal", "ppo_actor/task_rewards/avg"), ("skyrl", "policy/policy_entropies"), ("openrlhf", "actor_gradnorm"),
    ("ms-swift", "rollout_correction/k4_kl"), ("verl", "rollout_corr/k4_kl"), ("twinkle-kit", "train/entropie"),
])  # fmt: skip
def test_a_key_that_nobody_logs_is_missed(package: str, key: str) -> None:
    assert not names(package).logs(key, ENGINES[package].around)


if __name__ == "__main__":
    content = {f"{package} {engine.version}": unmapped(package) for package, engine in ENGINES.items()}
    UNMAPPED.write_text(json.dumps(content, indent=1) + "\n")
