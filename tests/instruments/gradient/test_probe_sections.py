"""What the page says of probes: numbers against probe.json and the library, honest words, and nothing without one."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
import synthetic_probe
import torch
from synthetic_probe import estimate
from transformers import LlamaConfig, LlamaForCausalLM

from grposcope.core.answer import Answer, Figure
from grposcope.core.files import dumps
from grposcope.instruments.gradient import answer as geometry
from grposcope.instruments.gradient import probe
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient import recording as records
from grposcope.instruments.gradient.answer import _tokens_chart
from grposcope.instruments.gradient.probe_record import read_gram
from grposcope.instruments.group_size import PlanSettings, mse, planning
from grposcope.instruments.group_size import answer as group_size
from grposcope.instruments.group_size import size as group_size_facts
from grposcope.instruments.runs import rollouts
from grposcope.instruments.runs import timing_answer as timing
from grposcope.instruments.runs.overview import top as headline
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.tasks.base import Problem
from grposcope.logs import Run, read
from grposcope.maths import moments
from grposcope.render import charts as base
from grposcope.render import rollout_viewer
from grposcope.runs_page import document

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_probe.make(tmp_path_factory.mktemp("probes") / "one", seed=3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of 40 steps with probes of steps 0 and 40."""
    place = synthetic.make(tmp_path_factory.mktemp("runs") / "run", steps=40, settings={"group": 9})
    for seed, step in ((1, 0), (2, 40)):
        synthetic_probe.make(place / "probes" / f"step-{step:06d}", seed=seed)
    return read(place)


def shown(build: Any, *runs: Run) -> Answer:
    found = build(list(runs))
    assert isinstance(found, Answer)
    return found


def figure(section: Answer, name: str) -> Figure:
    return next(f for f in section.figures if f.name == name)


def sized(run: Run) -> Answer:
    """What the page says of the group size of one run."""
    (answer,) = group_size.answers([run], PlanSettings())
    return answer


def text(section: Answer) -> str:
    return "\n".join(section.paragraphs)


def about(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "probe.json").read_text())
    return content


def measured(folder: Path) -> dict[str, Any]:
    """What the probe command writes of a small random model and random rollouts; the summary it prints."""
    torch.manual_seed(0)
    size: dict[str, Any] = {"vocab_size": 13, "hidden_size": 8, "intermediate_size": 12, "max_position_embeddings": 32}
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, num_attention_heads=2, **size)).double().eval()
    prompts, group = 3, 4
    ids, mask = torch.randint(3, 13, (prompts * group, 5)), torch.arange(5) < torch.randint(2, 6, (prompts * group, 1))
    batch = RolloutBatch(
        prompt_ids=torch.randint(3, 13, (prompts, 4)).repeat_interleave(group, 0),
        prompt_mask=torch.ones(prompts * group, 4, dtype=torch.bool),
        tokens=ids.where(mask, 0), mask=mask, logp=torch.zeros(ids.shape), entropy=torch.zeros(ids.shape),
        truncated=torch.zeros(len(ids), dtype=torch.bool),
        rewards=torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1]]).double(),
    )  # fmt: skip
    found = probe.probe(model, batch, recipes.GRPO, tier="exact", sweep=[2], controls=True, learning_rate=1e-3)
    record = records.record(found, "tiny", "arithmetic", seed=0)
    problems = [Problem(f"p{i}", "?") for i in range(prompts)]
    tokens = [[f"<{i}>" for i in row[kept].tolist()] for row, kept in zip(ids, mask, strict=True)]
    rows = records.rollouts(found, problems, ["text"] * len(ids), tokens)
    probes.write(folder, record, records.gram(found), rows)
    said: dict[str, Any] = json.loads(dumps(record.summary()))
    return said


@pytest.mark.needs("runs")
def test_what_the_command_writes_is_what_the_page_reads(tmp_path: Path) -> None:
    """Every figure of a real probe is a file that shows something, and the numbers are its own."""
    said = measured(tmp_path / "probe")
    content = document([read(tmp_path / "probe")])
    sections = {section.name: section for section in content.sections}
    assert {"geometry", "group_size", "rollouts", "settings"} <= sections.keys()
    assert not {"learning", "time"} & sections.keys()
    stable = said["settings"]["grpo"]["layer"]["stable"]["value"]
    assert f"stable rank of {stable:.3g};" in content.top.sentence
    section = sections["geometry"]
    written = about(tmp_path / "probe")
    assert len(figure(section, "geometry_ranks").data["cells"]["layer"]) == len(written["layers"]) == 16
    assert len(set(figure(section, "geometry_spectra").data["values"]["layer"])) == len(written["layers"])
    assert set(figure(section, "geometry_settings").data["ranks"]["setting"]) == set(said["settings"])
    assert {"grpo", "grpo, G=2", "nll"} <= set(said["settings"])
    tokens = [json.loads(line) for line in (tmp_path / "probe" / "tokens.jsonl").read_text().splitlines()]
    viewed = sections["rollouts"].data["runs"][0]["steps"][0]["problems"]
    assert [problem["dead"] for problem in viewed] == [False, False, True]
    assert [one["tokens"] for problem in viewed for one in problem["rollouts"]] == [row["tokens"] for row in tokens]
    numbers = json.loads(dumps(content.numbers))
    assert numbers["geometry"]["probe"]["settings"] == said["settings"]
    assert numbers["group_size"]["probe"]["moments"]["delta"]["n"] == 3
    paths = base.export(content.figures, tmp_path / "pictures", "svg")
    assert len(paths) == len(content.figures) == len({path.name for path in paths}) >= 5
    assert all("<path" in path.read_text() for path in paths)


def test_without_a_probe_nothing_changes(tmp_path: Path) -> None:
    plain = read(synthetic.make(tmp_path / "plain", steps=10))
    assert geometry._section([plain]) is None
    assert group_size.answers([plain], PlanSettings()) == []
    data = shown(rollouts._section, plain).data
    assert all(entry.keys() == {"run", "steps", "notes"} for entry in data["runs"])
    place = synthetic.make(tmp_path / "empty", steps=1)
    for path in (*place.glob("*.jsonl"), place / "summary.json"):
        path.unlink()
    assert headline([read(place)]).sentence == "Cannot tell: no optimiser step is recorded yet"


# Geometry


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    unknown = {name: estimate(math.nan, math.nan, 0, "weights vary within rollouts") for name in ("plain", "reduced")}
    nothing = estimate(math.nan, math.nan, 1, "1 of 10 groups have unequal rewards")
    place = synthetic_probe.make(
        tmp_path / "probe",
        two_classes=unknown,
        parameter_sparsity={},
        settings={"grpo": {"layer": {"stable": estimate(math.nan, math.nan, 0, "no data")}}},
        baseline={"covariance": nothing, "verdict": "cannot tell: 1 of 10 groups have unequal rewards"},
        groups={"dead": estimate(0.1, 0.1, 10), "dead_if_alike": math.nan},
        complete=False,
        layers=[],
        baselines=[],
        skipped={"shuffled": "all weights are zero"},
    )
    run = read(place)
    assert run.meta.status == "interrupted"
    section = shown(geometry._section, run)
    for part in (
        "Rank: cannot tell (no data).",
        "Two classes: cannot tell (weights vary within rollouts).",
        "the entries of the gradient were not measured",
        "Baseline: cannot tell: 1 of 10 groups have unequal rewards.",
        "because rewards are not 0 and 1",
        "mean reward",
        "The probe was interrupted",
        "Skipped shuffled: all weights are zero.",
    ):
        assert part in text(section), part
    assert [f.name for f in section.figures] == ["geometry_tokens"]
    assert "the rank of its gradient is unknown" in headline([run]).sentence


def test_the_share_of_the_largest_tokens_is_exact() -> None:
    """Equal tokens: the share is the share of tokens. One token with everything: 1 from the first on."""
    found = _tokens_chart([("equal", np.ones(50)), ("one", np.eye(50)[3]), ("none", np.zeros(9))], "t", "")
    assert found is not None
    rows = list(zip(*(found.data["tokens"][name] for name in ("kind", "tokens", "held")), strict=True))
    assert {kind for kind, _, _ in rows} == {"equal", "one"}
    for kind, share, held in rows:
        assert held == pytest.approx(share if kind == "equal" else 1, abs=1e-4)


def test_spectra_are_shares_of_the_largest_and_ranks_lie_where_they_belong(folder: Path) -> None:
    section, content = shown(geometry._section, read(folder)), about(folder)
    drawn = figure(section, "geometry_spectra").data["values"]
    rows = {(layer, k): share for layer, k, share in zip(drawn["layer"], drawn["k"], drawn["share"], strict=True)}
    cells = figure(section, "geometry_ranks").data["cells"]
    place = {name: (block, role) for name, block, role in zip(cells["layer"], cells["block"], cells["projection"],
                                                              strict=True)}  # fmt: skip
    assert place["model.layers.2.mlp.up_proj.weight"] == ("2", "up_proj")
    assert place["model.embed_tokens.weight"] == ("none", "embed_tokens")
    for layer in content["layers"]:
        spectrum = layer["spectra"]["grpo"]
        assert rows[layer["name"], 1] == 1
        assert rows[layer["name"], 2] == pytest.approx(spectrum["values"][1] / spectrum["values"][0], rel=1e-3)
        rank = cells["rank"][cells["layer"].index(layer["name"])]
        assert rank == pytest.approx(spectrum["ranks"]["stable"], rel=1e-3)


def test_deep_models_are_thinned_by_blocks(tmp_path: Path) -> None:
    place = synthetic_probe.make(tmp_path / "probe", prompts=2, blocks=60)
    found = figure(shown(geometry._section, read(place)), "geometry_spectra")
    blocks = {int(b) for b in found.data["values"]["block"] if b != "none"}
    assert {0, 59} <= blocks
    assert 20 <= len(blocks) <= 36
    assert f"{len(blocks)} of 60 blocks are drawn" in found.caption


def test_the_baseline_of_each_prompt_has_its_interval(folder: Path) -> None:
    rows = figure(shown(geometry._section, read(folder)), "geometry_baseline").data["prompts"]
    known = [one for one in about(folder)["baselines"] if one["covariance"]["value"] != "NaN"]
    assert sorted(rows["prompt"]) == [one["prompt"] + 1 for one in known]
    assert rows["gap"] == sorted(rows["gap"])
    for prompt, gap, low, high in zip(*(rows[name] for name in ("prompt", "gap", "low", "high")), strict=True):
        one = about(folder)["baselines"][prompt - 1]["covariance"]
        assert gap == pytest.approx(one["value"], rel=1e-3)
        assert (low, high) == pytest.approx(
            (one["value"] - 1.96 * one["se"], one["value"] + 1.96 * one["se"]), abs=1e-3
        )


def test_probes_of_several_steps_are_curves(run: Run) -> None:
    section = shown(geometry._section, run)
    drawn = figure(section, "probes_dead").data["points"]
    seen = [(step, value) for step, line, value in zip(drawn["step"], drawn["line"], drawn["value"], strict=True)
            if line == "seen"]  # fmt: skip
    for (step, value), one in zip(seen, probes.of_run(run), strict=True):
        assert step == int(one.folder.name[-2:])
        assert value == pytest.approx(one.groups.dead.value, abs=1e-4)
    assert {"probes_ranks", "probes_token_sparsity", "probes_visible", "probes_baseline_gap"} <= {
        f.name for f in section.figures
    }
    last = Run(run.meta, run.config, run.table, run.groups, run.evaluations)
    last.memory[f"{probes.__name__}.of_run"] = probes.of_run(run)[-1:]
    assert not any(f.name.startswith("probes_") for f in shown(geometry._section, last).figures)


def test_several_runs_are_compared(folder: Path, run: Run) -> None:
    section = shown(geometry._section, run, read(folder))
    assert [row[0] for row in section.tables[0].rows] == ["run", "one"]
    assert set(figure(section, "geometry_blocks").data["blocks"]["run"]) == {"run", "one"}
    assert set(figure(section, "geometry_tokens").data["tokens"]["kind"]) == {"run", "one"}
    points = figure(section, "probes_ranks").data["points"]
    assert set(points["line"]) == {"run"}
    assert "probe" in section.document["one"]
    names = [f.name for f in document([run, read(folder)]).figures]
    assert len(names) == len(set(names))


# Group size


def test_the_verdict_is_that_of_the_library(folder: Path) -> None:
    file = read_gram(folder)
    found = moments.from_gram(file.gram, file.rewards)
    plan = planning.optimal_group(found)
    section = sized(read(folder))
    low, high = plan.interval
    loss = planning.loss(found.pooled, np.array([6]), 0, 1)[0, 0]
    assert section.sentence.startswith("Cannot tell the best group size for recipe grpo, which divides")
    assert section.text[0].startswith(
        "With leave-one-out advantages (recipe rloo): "
        f"Best G = {plan.integer} (G* = {plan.continuous.value:.3g}, 95% interval {low:.3g} to {high:.3g}); any G from "
        f"{plan.near[0]} to {plan.near[1]} needs at most 5% more rollouts. At G = 6 you need {100 * loss:.0f}% more "
    )
    numbers = section.document["one"]
    assert numbers["plan"]["continuous"]["value"] == plan.continuous.value
    assert numbers["moments"]["delta"]["value"] == found.delta.value
    assert [point["group"] for point in numbers["plan"]["curve"]] == [2, 4, 8, 16, 32, 64]
    curve = figure(section, "group_size").data["curve"]
    eight = curve["group"].index(8)
    assert curve["needed"][eight] == pytest.approx(1 + planning.loss(found.pooled, np.array([8]), 0, 1)[0, 0], rel=1e-4)


def test_a_run_is_told_what_its_own_group_size_loses(run: Run) -> None:
    assert "At G = 9 you need" in sized(run).text[0]


def test_the_parts_of_the_error_add_up(folder: Path) -> None:
    file = read_gram(folder)
    found = moments.from_gram(file.gram, file.rewards)
    section = sized(read(folder))
    rows = figure(section, "variance_budget").data["parts"]
    heights: dict[int, float] = {}
    for group, height in zip(rows["group"], rows["height"], strict=True):
        heights[int(group)] = heights.get(int(group), 0.0) + height
    totals = {group: group * mse.leave_one_out(found, 1, group).value for group in heights}
    least = min(totals.values())
    for group, height in heights.items():
        assert height == pytest.approx(totals[group] / least, rel=1e-3)
    ratio = figure(section, "oracle_ratio").data["ratios"]
    assert ratio["ratio"][ratio["group"].index(4)] == pytest.approx(mse.efficiency(found, 4).value, rel=1e-4)


def test_a_blocks_optimum_is_that_of_the_sum_of_its_layers(folder: Path) -> None:
    file = read_gram(folder, layers=True)
    assert file.layers is not None
    chosen = [i for i, name in enumerate(file.layer_names) if ".1." in name]
    assert len(chosen) == 2
    alone = planning.optimal_group(moments.from_gram(file.layers[chosen].sum(0), file.rewards))
    section = sized(read(folder))
    assert section.document["one"]["blocks"]["block 1"]["continuous"]["value"] == alone.continuous.value
    drawn = figure(section, "group_size_blocks").data["blocks"]["block"]
    assert drawn == ["all", "block 0", "block 1", "outside of blocks"]  # the V_p of block 2 is not above 0


def test_layers_too_large_to_read_are_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_size_facts, "LARGEST_LAYERS", 1000)
    section = sized(read(folder))
    assert "grposcope plan computes them when asked for layers" in text(section)
    assert "group_size_blocks" not in [f.name for f in section.figures]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"prompts": 1}, "one prompt does not show"),
        ({"group": 3}, "the probe has 3; it gives only the error per prompt"),
        ({"rewards": np.ones((64, 6))}, "all rewards are equal within every group"),
    ],
)
def test_it_says_when_it_cannot_tell(tmp_path: Path, made: dict[str, Any], reason: str) -> None:
    run = read(synthetic_probe.make(tmp_path / "probe", **made))
    section = sized(run)
    assert section.sentence.startswith("Cannot tell the best group size: ")
    assert reason in section.sentence
    assert not section.figures
    assert not section.tables
    assert section.document["probe"]["plan"] is None
    assert "Cannot tell" in headline([run]).text[1]


def test_a_missing_gram_is_said(tmp_path: Path) -> None:
    place = synthetic_probe.make(tmp_path / "probe")
    (place / "gram.npz").unlink()
    section = sized(read(place))
    assert "gram.npz is missing" in section.sentence


def test_an_interval_without_end_is_no_verdict(tmp_path: Path) -> None:
    """Two live groups of twelve."""
    rewards = np.zeros((12, 6))
    rewards[0, 0] = rewards[1, :3] = 1
    section = sized(read(synthetic_probe.make(tmp_path / "probe", prompts=12, rewards=rewards)))
    assert section.sentence.startswith("Cannot tell the best group size: ")
    assert "1 of 12 groups have at least two successes and two failures" in section.sentence
    assert "at most 5% more rollouts" not in text(section)
    assert all(json.dumps(f.data, allow_nan=False) for f in section.figures)


def test_the_optimum_over_training(run: Run) -> None:
    drawn = figure(sized(run), "group_size_steps").data["course"]
    assert drawn["step"] == [0, 40]
    for one, best in zip(probes.of_run(run), drawn["best"], strict=True):
        file = one.read_gram()
        plan = planning.optimal_group(moments.from_gram(file.gram, file.rewards))
        assert best == pytest.approx(min(plan.continuous.value, 64), rel=1e-4)


# Rollouts, headline, and the rest of the page


def test_the_viewer_has_the_credit_of_every_token(tmp_path: Path) -> None:
    folder = synthetic_probe.make(tmp_path / "few", prompts=10)
    data = shown(rollouts._section, read(folder)).data
    (entry,) = data["runs"]
    assert entry["probe"]
    problems = entry["steps"][0]["problems"]
    dead = [problem["dead"] for problem in problems]
    assert dead == sorted(dead)
    assert any(dead)
    rows = [json.loads(line) for line in (folder / "tokens.jsonl").read_text().splitlines()]
    for problem in problems:
        own = [row for row in rows if row["problem"] == problem["problem"]["text"]]
        for one, row in zip(problem["rollouts"], own, strict=True):
            assert one["tokens"] == row["tokens"]
            assert one["sharers"] == row["sharers"]
            credit = [w * n for w, n in zip(row["weight"], row["norm"], strict=True)]
            assert one["credit"] == pytest.approx(credit, rel=0.01)
            assert [abs(c) for c in one["credit"]] == pytest.approx(row["mass"], rel=0.01)
            assert problem["dead"] == (not any(one["credit"]))
        common = [one["net"][0] for one in problem["rollouts"]]
        assert common == pytest.approx([0] * len(common), abs=1e-12)


def test_a_runs_own_rollouts_come_first(run: Run) -> None:
    entries = shown(rollouts._section, run).data["runs"]
    assert [entry["run"] for entry in entries] == ["run", "run, probe"]
    assert [step["step"] for step in entries[1]["steps"]] == [40]


def test_text_that_looks_like_numbers_stays_text(tmp_path: Path) -> None:
    place = synthetic_probe.make(tmp_path / "probe", texts=("NaN", "Infinity"))
    one = shown(rollouts._section, read(place)).data["runs"][0]["steps"][0]["problems"][0]["rollouts"][0]
    assert one["tokens"][2:] == ["NaN"]


def test_long_probes_are_cut_and_say_so(tmp_path: Path) -> None:
    step = shown(rollouts._section, read(synthetic_probe.make(tmp_path / "many", prompts=30))).data["runs"][0]["steps"][
        0
    ]
    assert (len(step["problems"]), step["left_out"]) == (12, 18)
    place = synthetic_probe.make(tmp_path / "long", texts=("word " * 1000,), prompts=12)
    step = shown(rollouts._section, read(place)).data["runs"][0]["steps"][0]
    assert 0 < len(step["problems"]) <= 12
    assert len(json.dumps(step)) < rollout_viewer.BUDGET


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows[:-1], "do not make whole groups of 6"),
        (
            lambda rows: [{**row, "net": row["net"][:1]} for row in rows],
            "was not written by grposcope probe, or was changed",
        ),
        (lambda rows: [{"a": 1} for _ in rows], "was not written by grposcope probe, or was changed"),
        (lambda rows: [{**row, "weight": "x", "norm": ["x"]} for row in rows], "must be a list of numbers"),
    ],
)
def test_broken_tokens_are_a_note_not_an_end(tmp_path: Path, change: Any, says: str) -> None:
    place = synthetic_probe.make(tmp_path / "probe")
    rows = [json.loads(line) for line in (place / "tokens.jsonl").read_text().splitlines()]
    (place / "tokens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in change(rows)))
    found = [shown(build, read(place)) for build in (geometry._section, rollouts._section)]
    assert says in "\n".join(itertools.chain.from_iterable(section.text for section in found))
    assert found[1].data is None
    (place / "tokens.jsonl").unlink()
    assert rollouts._section([read(place)]) is None


def test_the_headline_of_a_probe_says_what_was_found(folder: Path, run: Run) -> None:
    top = headline([read(folder)])
    dead = about(folder)["groups"]["dead"]["value"]
    assert top.sentence == (
        "The gradients of tiny on arithmetic have a mean stable rank of 1.5; 5% of the tokens hold 78% of the squared "
        f"score norms, and {100 * dead:.0f}% of the groups are dead."
    )
    assert top.text[0].startswith("tiny on arithmetic, 64 prompts × 6 rollouts")
    assert top.text[1] == f"Group size: {sized(read(folder)).sentence}"
    named = {tile.name for tile in top.numbers}
    assert named >= {"stable rank", "dead groups", "best group size with leave-one-out advantages"}
    both = headline([read(folder), read(folder)])
    assert both.sentence.startswith("2 probes, with stable ranks 1.5 in one (1)") or "1.5 in" in both.sentence
    assert headline([run]).sentence.startswith("Healthy: held-out accuracy")


@pytest.mark.needs("runs")
def test_the_settings_of_a_probe_are_shown(folder: Path) -> None:
    table = next(s for s in document([read(folder)]).sections if s.name == "settings").tables[0]
    assert {"model", "task", "recipe", "tier", "prompts", "group", "solved"} <= {row[0] for row in table.rows}


def test_time_spent_probing_counts_only_where_it_was_spent(tmp_path: Path) -> None:
    """A window of steps shows the mean over all its steps, of which few were probed."""
    place = synthetic.make(tmp_path / "run", steps=200)
    rows = [json.loads(line) for line in (place / "steps.jsonl").read_text().splitlines()]
    for row in rows[::5]:
        row["seconds_probe"] = 3.0
    (place / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    section = shown(lambda runs: next(iter(timing.answers(runs, None)), None), read(place))
    assert section.document["run"]["probes"] == pytest.approx(120.0)
    windows = figure(section, "seconds").data["windows"]
    parts = zip(*(windows[name] for name in ("phase", "from", "to", "seconds")), strict=True)
    assert sum((b - a) * s for phase, a, b, s in parts if phase == "probes") == pytest.approx(120.0, rel=1e-3)
    assert "probes" in section.tables[0].header
    assert (
        "probes"
        not in shown(
            lambda runs: next(iter(timing.answers(runs, None)), None), read(synthetic.make(tmp_path / "plain", steps=5))
        )
        .tables[0]
        .header
    )
