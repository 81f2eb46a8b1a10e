"""What the sections say: numbers against the record, honest words, and silence where there is nothing."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic

from grposcope.core.metrics import metric
from grposcope.core.rollouts import Rollout
from grposcope.core.run import labels
from grposcope.core.text import percent
from grposcope.instruments import FOLDERS
from grposcope.instruments.diagnosis import answer as diagnosis
from grposcope.instruments.group_size import dead_groups_answer as dead_groups
from grposcope.instruments.runs import course, overview, rollouts, timing, timing_answer
from grposcope.instruments.runs import settings as run_settings
from grposcope.instruments.runs.timing import REST
from grposcope.logs import Run, read
from grposcope.runs_page import document


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    synthetic.make(folder / "one", steps=60, prompts=16)
    synthetic.make(folder / "two", steps=60, prompts=16, seed=1, settings={"recipe": "dr_grpo"})
    return folder


@pytest.fixture(scope="module")
def run(made: Path) -> Run:
    return read(made / "one")


def edited(made: Path, folder: Path, **files: str) -> Run:
    folder.mkdir()
    for path in (made / "one").iterdir():
        if path.is_file():
            (folder / path.name).write_text(files.get(path.stem, path.read_text()))
    return read(folder)


@pytest.mark.needs(*FOLDERS.values())
def test_all_sections_have_something_to_say(run: Run) -> None:
    names = [section.name for section in document([run]).sections]
    assert names == ["diagnosis", "rollouts", "learning", "spread", "policy", "completions", "update", "dead_groups",
                     "time", "other", "texts", "dynamics", "settings"]  # fmt: skip


def test_every_metric_of_the_record_is_shown_somewhere(run: Run) -> None:
    content = document([run])
    drawn = {figure.name for figure in content.figures}
    text = " ".join(sentence for section in content.sections for sentence in section.text)
    for name in run.table:
        if name not in ("step", "time", "tokens", "seconds_sample", "seconds_grade", "seconds_update", "dead_fraction"):
            title = metric(name).title
            assert name in drawn or title in text, name
    assert {"dead_groups", "seconds"} <= drawn


def test_metrics_outside_the_vocabulary_are_drawn(made: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (made / "one" / "steps.jsonl").read_text().splitlines()]
    text = "".join(json.dumps({**row, "probe_stable_rank": 1.9 + i / 100}) + "\n" for i, row in enumerate(rows))
    found = run_settings._other([edited(made, tmp_path / "probed", steps=text)])
    assert found is not None
    assert "probe_stable_rank" in [figure.name for figure in found.figures]


def test_a_metric_that_never_changes_is_said_not_drawn(run: Run) -> None:
    found = course.policy([run])
    assert found is not None
    assert [figure.name for figure in found.figures] == ["kl_old", "entropy"]
    assert found.text == ["KL to the starting policy: not defined in this run."]


def test_numbers_are_those_of_the_record(run: Run) -> None:
    numbers = document([run]).numbers
    reward = numbers["learning"]["one"]["reward"]
    assert reward.last_tenth.value == pytest.approx(run.table["reward"][-6:].mean())
    assert reward.largest == run.table["reward"].max()
    assert numbers["policy"]["one"]["kl"].not_finite == 60
    first = numbers["learning"]["one"]["heldout"]["first"]
    assert (first["step"], first["value"]) == (0, run.evaluations.of("pass@1").value[0])
    seconds = numbers["time"]["one"]
    assert seconds["sampling"] == pytest.approx(run.table["seconds_sample"].sum())
    assert seconds["tokens"] == run.table["tokens"].sum()


def test_dead_groups_agree_with_chance_where_rollouts_are_independent(run: Run) -> None:
    found = dead_groups._section([run])
    assert found is not None
    said = found.document["one"]
    dead = np.mean([len(set(r)) == 1 for r in np.split(run.groups.rewards, run.groups.offsets[1:-1])])
    assert said["observed"]["value"] == pytest.approx(dead)
    assert abs(said["observed"]["value"] - said["predicted"]["value"]) < 3 * said["observed"]["se"]
    assert said["plugged_in_biased"] > said["observed"]["value"]
    assert "which agrees with what was seen" in found.sentence


def test_prompts_that_are_not_spread_like_a_beta_are_noticed(run: Run, made: Path, tmp_path: Path) -> None:
    """Half of the prompts impossible, half a coin toss: many more dead groups than a smooth spread makes."""
    rng = np.random.default_rng(0)
    lines = [json.loads(line) for line in (made / "one" / "groups.jsonl").read_text().splitlines()]
    for i, line in enumerate(lines):
        line["rewards"] = (rng.random(8) < 0.5 * (i % 2)).astype(float).tolist()
    lumps = edited(made, tmp_path / "lumps", groups="".join(json.dumps(line) + "\n" for line in lines))
    found = dead_groups._section([lumps])
    assert found is not None
    said = found.document["lumps"]
    assert said["observed"]["value"] == pytest.approx(0.5 + 2**-8, abs=0.02)
    assert said["observed"]["value"] - said["predicted"]["value"] > 0.1
    assert "More were dead: look for prompts" in found.sentence


@pytest.mark.parametrize(
    ("rewards", "words"),
    [([0.0, 0.5, 1.0], "more than two values"), ([1.0], "Groups of one rollout"), (None, "No groups are recorded")],
)
def test_where_chance_cannot_be_told(made: Path, tmp_path: Path, rewards: list[float] | None, words: str) -> None:
    line = json.dumps({"step": 1, "problem": "a", "rewards": rewards}) + "\n"
    found = dead_groups._section([edited(made, tmp_path / "run", groups="" if rewards is None else line)])
    assert found is not None
    assert words in found.sentence
    assert [figure.name for figure in found.figures] == ["dead_fraction"]


def test_replaced_groups_are_a_selection(made: Path, tmp_path: Path) -> None:
    config = json.loads((made / "one" / "config.json").read_text())
    config["objective"]["resample_dead"] = True
    found = dead_groups._section([edited(made, tmp_path / "dapo", config=json.dumps(config))])
    assert found is not None
    assert "are a selection" in found.sentence


def evaluations(*rows: tuple[int, float, float, int]) -> str:
    return "".join(
        json.dumps({"step": s, "pass@1": {"value": v, "se": e, "n": n, "flag": ""}}) + "\n" for s, v, e, n in rows
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [(0, 0.3, 0.02, 200), (60, 0.8, 0.02, 200)],
            "Healthy: held-out accuracy 30% → 80% in 60 steps",
        ),
        ([(0, 0.8, 0.02, 200), (60, 0.3, 0.02, 200)], "Failing: held-out accuracy 80% → 30% in 60 steps"),
        (
            [(0, 0.3, 0.02, 200), (60, 0.32, 0.02, 200)],
            "Cannot tell: held-out accuracy 30% → 32% in 60 steps, no gain shown",
        ),
        ([(0, 0.0, 0.0, 8), (60, 0.0, 0.0, 8)], "Healthy: reward 0.41 → 0.84 in 60 steps; held-out undecided"),
        ([(0, 0.3, 0.02, 200)], "Healthy: reward 0.41 → 0.84 in 60 steps; held-out undecided"),
        ([], "Healthy: reward 0.41 → 0.84 in 60 steps; held-out not logged"),
    ],
)
def test_the_headline_is_honest(
    made: Path, tmp_path: Path, rows: list[tuple[int, float, float, int]], words: str
) -> None:
    assert words in overview.of_run(edited(made, tmp_path / "run", evals=evaluations(*rows))).sentence


@pytest.mark.needs("gradient", "dynamics")
def test_a_run_without_steps_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"format": 2, "settings": {}}')
    content = document([read(tmp_path)])
    assert content.top.sentence == "Cannot tell: no optimiser step is recorded yet"
    assert [section.name for section in content.sections] == ["settings"]


def test_a_run_cut_at_any_moment_has_a_page(made: Path, tmp_path: Path) -> None:
    for cut in (1, 40, 500, 5000, 20_000):
        text = {name: (made / "one" / f"{name}.jsonl").read_text()[:cut] for name in ("steps", "groups", "evals")}
        assert document([edited(made, tmp_path / str(cut), phase="", summary="{}", **text)]).sections


def test_differences_are_listed(made: Path, tmp_path: Path) -> None:
    runs = [read(made / "one"), read(made / "two")]
    found = run_settings._section(runs)
    assert found is not None
    assert found.tables[0].title == "What differs"
    assert [row[0] for row in found.tables[0].rows] == ["settings.recipe", "settings.seed"]
    assert found.tables[0].rows[0][1:] == ("grpo", "dr_grpo")
    assert found.sentence == "The runs differ in settings.recipe and settings.seed."
    old = read(synthetic.make(tmp_path / "old", steps=3, version=1, settings={"recipe": "grpo", "extra": 1}))
    mixed = run_settings._section([runs[0], old])
    assert mixed is not None
    assert [row[0] for row in mixed.tables[0].rows] == ["settings.steps", "settings.prompts"]
    assert mixed.text == ["1 further settings are recorded for some of the runs only."]
    same = run_settings._section([runs[0], runs[0]])
    assert same is not None
    assert same.sentence == "All settings recorded for more than one run are equal."


@pytest.mark.slow
def test_several_runs_are_overlaid(made: Path) -> None:
    content = document([read(made / "one"), read(made / "two")])
    reward = next(figure for figure in content.figures if figure.name == "reward")
    assert set(reward.data["thick"]["run"]) == {"one", "two"}
    assert content.top.sentence.startswith("No run ends clearly best") or "ends best" in content.top.sentence
    assert diagnosis.learned([read(made / "one"), read(made / "two")]) is not None


def test_runs_on_different_tasks_are_not_ranked(tmp_path: Path) -> None:
    tasks = {"one": "arithmetic", "two": "gsm8k"}
    runs = [read(synthetic.make(tmp_path / name, steps=8, settings={"task": task})) for name, task in tasks.items()]
    assert (
        "2 runs on different tasks, arithmetic and gsm8k: their accuracies cannot be compared"
        in document(runs).top.sentence
    )


def test_names_are_told_apart(made: Path, tmp_path: Path) -> None:
    synthetic.make(tmp_path / "one", steps=2)
    assert labels([read(made / "one"), read(tmp_path / "one")]) == [f"{made.name}/one", f"{tmp_path.name}/one"]
    assert labels([read(made / "one")] * 2) == [f"{made.name}/one (1)", f"{made.name}/one (2)"]


def test_rest_of_the_time_is_what_lies_between_rows(run: Run) -> None:
    rest = timing.of_run(run).phases[REST]
    assert math.isnan(rest[0])
    np.testing.assert_allclose(rest[1:], 0.009, atol=1e-5)


def test_what_took_longest_comes_first(run: Run) -> None:
    seconds = timing.of_run(run).seconds
    name = max(seconds, key=lambda phase: seconds[phase])
    (said,) = timing_answer.answers([run], None)
    share = percent(seconds[name] / sum(seconds.values()))
    assert said.sentence.lower().startswith(f"{name} took the largest part, {share} of ")


def test_steps_of_the_viewer_are_spread_over_the_run() -> None:
    assert list(rollouts._spread_out(5)) == [0, 4, 2, 1, 3]
    assert list(rollouts._spread_out(0)) == []
    assert list(rollouts._spread_out(1)) == [0]
    for count in (2, 7, 100):
        assert sorted(rollouts._spread_out(count)) == list(range(count))


def test_the_viewer_keeps_to_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = read(synthetic.make(tmp_path / "run", steps=40, rollouts_every=1, prompts=2, group=2))
    monkeypatch.setattr(rollouts, "BUDGET", 12_000)
    found = rollouts._section([run])
    assert found is not None
    steps = found.data["runs"][0]["steps"]
    assert 2 < len(steps) < 40
    assert steps[0]["step"] == 1
    assert steps[-1]["step"] == 40
    assert len(json.dumps(steps)) < 20_000
    assert f"{len(steps)} of 40 recorded steps" in found.data["runs"][0]["notes"][0]


def test_the_viewer_has_who_branched_from_whom_and_what_else_was_written(tmp_path: Path) -> None:
    run = read(synthetic.make(tmp_path / "run", steps=10, rollouts_every=5, prompts=1, group=2))
    step = min(run.rollouts)
    first, second = run.rollouts[step][:2]
    each = [(2, "4+5", 1.0, 3), (2, "4-5", 0.0, 3), (1, "x" * 400, 0.5, 400)]
    written = [Rollout(shared=at, completion=text, reward=reward, length=size) for at, text, reward, size in each]
    leaves = (replace(first, continuations=tuple(written)), replace(second, parent=0, shared=2))
    found = rollouts._section([replace(run, rollouts={step: leaves})])
    assert found is not None
    one, other = found.data["runs"][0]["steps"][0]["problems"][0]["rollouts"]
    assert "parent" not in one
    assert (other["parent"], other["shared"], "continued" in other) == (0, 2, False)
    assert [(at["place"], at["count"], at["mean"]) for at in one["continued"]] == [(1, 1, 0.5), (2, 2, 0.5)]
    assert [example["text"] for example in one["continued"][1]["examples"]] == ["4+5", "4-5"]
    assert one["continued"][0]["examples"][0]["cut"] == "cut here: the first 300 of 400 characters"


def test_long_texts_are_cut_with_a_note(tmp_path: Path) -> None:
    run = read(synthetic.make(tmp_path / "run", steps=10, texts=synthetic.HOSTILE))
    found = rollouts._section([run])
    assert found is not None
    assert len(json.dumps(found.data)) < 200_000
    long = found.data["runs"][0]["steps"][0]["problems"][0]["rollouts"][3]
    assert long["cut"] == "cut here: the first 4,000 of 1,000,000 characters"
    assert "".join(long["tokens"]) == "a" * 4000


@pytest.mark.filterwarnings("error")
def test_times_that_are_not_finite_are_in_no_sum(run: Run) -> None:
    times = run.table["time"].copy()
    times[2:4] = np.inf
    broken = timing.of_run(replace(run, table={**run.table, "time": times})).phases[REST]
    plain = timing.of_run(run).phases[REST]
    assert np.isnan(broken[2:5]).all()
    assert np.array_equal(broken[5:], plain[5:])
