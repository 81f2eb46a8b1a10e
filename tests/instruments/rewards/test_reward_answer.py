"""What is said of several rewards: from every source the same numbers, the faults that were put in, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reward_rows
import synthetic_series as made

from grposcope import runs_page as page
from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.core.run import Run
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.rewards import RewardSettings, answer, found, source
from grposcope.logs import Hints, read
from grposcope.render.page import html

ONES = {"right": 1.0, "form": 1.0, "short": 1.0}


def said(capsys: pytest.CaptureFixture[str], *command: object) -> dict[str, Any]:
    assert main([*map(str, command), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def shares(document: dict[str, Any]) -> dict[str, float]:
    return {name: one["share"]["value"] for name, one in document["components"].items()}


def test_every_source_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Our form, TRL's and verl's; weights are found where the reward shows them, and given where it does not."""
    drawn, weights = reward_rows.drawn(6, 4), {"right": 1.0, "form": 0.25, "short": 0.0}
    ours = said(capsys, "rewards", reward_rows.jsonl(tmp_path / "a.jsonl", drawn, weights))
    verl = said(
        capsys, "rewards", reward_rows.verl(tmp_path / "v", drawn, weights), "--aggregation", "sum_then_normalize"
    )
    trl = said(capsys, "rewards", reward_rows.trl(tmp_path / "t", drawn, weights), "--weights", "1,0.25,0")
    assert shares(ours) == pytest.approx(shares(trl))
    assert shares(ours) == pytest.approx(shares(verl), rel=1e-3)  # another ε
    assert ours["components"]["form"]["intended_share"] == pytest.approx(0.2)
    assert ours["components"]["short"]["intended"] == 0
    assert 0.15 < shares(ours)["form"] < 0.25
    assert [one["weights_known"] for one in (ours, verl, trl)] == [True] * 3


def test_settings_of_the_log_are_used(tmp_path: Path) -> None:
    place = reward_rows.trl(tmp_path / "t", reward_rows.drawn(4, 4), ONES)
    settings = {"reward_weights": "0,1,0", "multi_objective_aggregation": "normalize_then_sum"}
    rollouts = source.of_run(read(place, Hints(settings=settings)))
    assert rollouts is not None
    assert rollouts.weights.tolist() == [0, 1, 0]
    assert rollouts.how.method == "normalize_then_sum"


def faulty(kind: str, seed: int) -> dict[str, np.ndarray]:
    """Rewards of a run with one fault, or none."""
    drawn = reward_rows.drawn(seed=seed)
    rng = np.random.default_rng(seed + 1000)
    if kind == "muted":
        drawn["form"] = drawn["form"] * 0.03
    if kind == "dead":
        drawn["form"] = np.full_like(drawn["form"], 0.2)
    if kind == "gamed":
        rise = np.linspace(0.1, 0.9, 30)[:, None, None]
        drawn["form"] = (rng.random(drawn["form"].shape) < rise) * 1.0
        drawn["right"] = (rng.random(drawn["right"].shape) < 0.7 - 0.5 * rise) * 1.0
    return drawn


def named(kind: str, seed: int, tmp_path: Path) -> list[str]:
    """Faults that are said of such a run, one letter each."""
    run = read(reward_rows.jsonl(tmp_path / f"{kind}{seed}.jsonl", faulty(kind, seed), ONES))
    told = answer.of_run(run, RewardSettings(verified="right"))
    assert told is not None
    said_of = {"muted": "form should have", "dead": "form is 0.2 on every rollout", "gamed": "form is gamed"}
    found_of = [fault for fault, words in said_of.items() if words in told.because]
    return found_of if told.word == "warning" else []


@pytest.mark.parametrize("kind", ["healthy", "muted", "dead", "gamed"])
def test_faults_are_named_and_healthy_runs_are_not_blamed(kind: str, tmp_path: Path) -> None:
    for seed in range(1):
        assert named(kind, seed, tmp_path) == ([] if kind == "healthy" else [kind]), seed


@pytest.mark.slow
def test_ninety_in_a_hundred_are_named(tmp_path: Path) -> None:
    """≥ 90 % of each fault over 40 seeds, ≤ 5 % of healthy runs."""
    right = {kind: sum(named(kind, s, tmp_path) == [kind] for s in range(40)) for kind in ("muted", "dead", "gamed")}
    false = sum(bool(named("healthy", seed, tmp_path)) for seed in range(40))
    assert min(right.values()) >= 36, right
    assert false <= 2


@pytest.mark.slow
def test_over_the_run_and_on_the_page(tmp_path: Path) -> None:
    """A weight that drifts is drawn in windows; names are text, not HTML."""
    drawn = reward_rows.drawn()
    drawn["a <b>b</b>"] = drawn.pop("form") * np.linspace(1, 0.05, 30)[:, None, None]
    run = read(reward_rows.trl(tmp_path / "t", drawn, {**ONES, "a <b>b</b>": 1.0}))
    what = found.of_run(run)
    assert what is not None
    drift = [shares[2].value for *_, shares in what.windows]
    assert drift[0] > 4 * drift[-1]
    assert len(what.windows) == 12
    shown = html(page.document([run]))
    assert "What do my rewards weigh?" in shown
    assert "<b>b</b>" not in shown
    assert "&lt;b&gt;" in shown or "\\u003cb" in shown


def test_diagnosis_names_the_muted_one(tmp_path: Path) -> None:
    """By the same decision; only where the weights are known, of the settings or by the advantages."""
    kinds = (("muted", "1,1,1", "present"), ("muted", "", "present"), ("healthy", "1,1,1", "excluded"))
    for kind, weights, status in kinds:
        place = reward_rows.trl(tmp_path / f"{kind}{weights}", faulty(kind, 0), ONES)
        run = read(place, Hints(settings={"reward_weights": weights} if weights else {}))
        (finding,) = [one for one in diagnose(run) if one.fault == "muted component"]
        assert finding.status == status
        assert ("form should have 33%" in finding.because) == (status == "present")
    unknown = read(reward_rows.jsonl(tmp_path / "without.jsonl", faulty("muted", 0)))
    assert [one.status for one in diagnose(unknown) if one.fault == "muted component"] == ["excluded"]


def log_of(spreads: dict[str, np.ndarray]) -> Run:
    return made.run({**made.healthy(), **{f"component_std/{name}": values for name, values in spreads.items()}})


def test_a_log_of_deviations_says_what_it_cannot_know() -> None:
    told = answer.of_run(log_of({"a": np.full(120, 0.5), "b": np.full(120, 0.1)}), RewardSettings(weights="1,1"))
    assert told is not None
    assert told.word == "cannot tell"
    assert "only an estimate" in told.sentence
    assert told.tables[0].rows[1][3].startswith("17%")
    dead = answer.of_run(log_of({"a": np.full(120, 0.5), "b": np.zeros(120)}), RewardSettings())
    assert dead is not None
    assert dead.word == "warning"
    assert dead.sentence.startswith("b never varied in any batch, so it trains nothing")


def test_a_log_of_ms_swift_has_the_rewards_of_its_functions(tmp_path: Path) -> None:
    """Its keys are those of TRL, and scale_rewards=gdpo standardizes each before the sum."""
    row = {
        "loss": 0.01, "reward": 0.5, "reward_std": 0.3, "kl": 0.001, "entropy/mean": 0.4,
        "completions/mean_length": 100.0, "rewards/Accuracy/mean": 0.5, "rewards/Accuracy/std": 0.4,
        "rewards/Format/mean": 1.0, "rewards/Format/std": 0.0, "elapsed_time": "5m 3s",
    }  # fmt: skip
    lines = [json.dumps({**row, "global_step/max_steps": f"{step}/40"}) for step in range(1, 31)]
    (tmp_path / "logging.jsonl").write_text("\n".join(lines))
    run = read(tmp_path / "logging.jsonl", Hints(settings={"scale_rewards": "gdpo"}))
    assert run.meta.engine == "ms-swift"
    told = answer.of_run(run, RewardSettings(weights="Accuracy=1,Format=0.5"))
    assert told is not None
    assert told.sentence.startswith("Format never varied in any batch")
    assert [row[:3] for row in told.tables[0].rows] == [("Accuracy", "1", "67%"), ("Format", "0.5", "33%")]
    assert any("do not set its weight" in line for line in told.text)


def test_one_reward_is_nothing_to_weigh(tmp_path: Path) -> None:
    assert answer.answers([made.run(made.healthy())], RewardSettings()) == []
    assert answer.of_run(log_of({"a": np.ones(120)}), RewardSettings()) is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--weights", "0,0,0"], "all weights of the rewards are 0"),
        (["--weights", "1,2"], "2 weights for 3 rewards"),
        (["--weights", "1,x,3"], "'x' is not a finite number"),
        (["--weights", "rihgt=1"], "no reward is named rihgt; they are right, form and short"),
        (["--aggregation", "sum"], "'sum' is not a way of combining rewards"),
        (["--gram", "no.npy"], "no.npy cannot be read"),
    ],
)
def test_bad_flags(flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = reward_rows.jsonl(tmp_path / "a.jsonl", reward_rows.drawn(2, 3))
    assert main(["rewards", str(place), *flags]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"rewards": {"a": "x"}, "group": 1}', "line 2: the reward a is x"),
        ('{"rewards": {"a": 1}}', "line 2 has no group"),
        ('{"rewards": [1], "group": 1}', "line 2: rewards is not an object"),
        ('{"rewards": {"a": 1}, "group": 1, "step": "x"}', "line 2: step is x"),
    ],
)
def test_bad_lines(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"rewards": {"a": 1, "b": 0}, "group": 1}\n' + line + "\n")
    with pytest.raises(UserError, match=words):
        read(path)


def test_rewards_that_nobody_judged_and_infinite_ones(tmp_path: Path) -> None:
    drawn = reward_rows.drawn(4, 4)
    drawn["judge"] = np.full_like(drawn["right"], np.nan)
    drawn["short"][0, 0, 0] = np.nan
    run = read(reward_rows.jsonl(tmp_path / "a.jsonl", drawn))
    run.groups.components["form"][3] = np.inf
    told = answer.of_run(run, RewardSettings())
    assert told is not None
    text = " ".join(told.text)
    assert "judge has no value for any rollout and is left out" in text
    assert "1 reward is infinite" in text
    assert "short has no value for 0.8% of the rollouts; in the sum these count as 0" in text


def test_gram_says_what_moves_the_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = reward_rows.drawn(1, 40, 6)
    path = reward_rows.jsonl(tmp_path / "a.jsonl", drawn)
    rng = np.random.default_rng(0)
    scores = drawn["right"].reshape(-1, 1) * [1.0, 0, 0] + 0.2 * rng.normal(size=(240, 3))
    np.save(tmp_path / "gram.npy", scores @ scores.T)
    document = said(capsys, "rewards", path, "--gram", tmp_path / "gram.npy")
    assert document["gradient"]["shares"]["right"]["value"] > 0.9
    np.save(tmp_path / "small.npy", np.eye(3))
    assert main(["rewards", str(path), "--gram", str(tmp_path / "small.npy")]) == 2
    assert "inner products of shape (3, 3) for 240 rollouts in 40 groups" in capsys.readouterr().err


def test_our_record_and_the_callbacks_have_components(tmp_path: Path) -> None:
    """groups.jsonl with components and lengths; lines without them, as of earlier versions, are read too."""
    import synthetic

    folder = synthetic.make(tmp_path / "run", steps=30)
    lines = [json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines()]
    rng = np.random.default_rng(0)
    for row in lines[8:]:
        size = len(row["rewards"])
        row["components"] = {"right": row["rewards"], "form <i>": rng.integers(0, 2, size).tolist()}
    (folder / "groups.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    run = read(folder)
    assert set(run.groups.components) == {"right", "form <i>"}
    assert np.isnan(run.groups.components["right"][:64]).all()
    assert answer.of_run(run, RewardSettings()) is not None
    lines[9]["components"]["right"] = [1.0]
    (folder / "groups.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    with pytest.raises(UserError, match="line 10: rewards, truncated and the columns beside them"):
        read(folder)
