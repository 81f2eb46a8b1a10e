"""Thinning keeps the extremes, averages are means, and what is not finite stays visible."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pytest
import synthetic
import synthetic_probe
from hypothesis import given, settings
from hypothesis import strategies as st

from grposcope.core.answer import Figure
from grposcope.core.errors import UserError
from grposcope.core.files import WRITTEN_NAN
from grposcope.logs import Run, read
from grposcope.render import charts as base
from grposcope.render import page, thinning
from grposcope.render.curves import curve
from grposcope.runs_page import document


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read(synthetic.make(tmp_path_factory.mktemp("runs") / "one", steps=200, prompts=4))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(), max_size=400), st.integers(1, 30))
def test_extremes_of_every_bin_are_kept(values: list[float], bins: int) -> None:
    column = np.array(values, float)
    kept = thinning.extremes(column, bins)
    assert len(kept) <= max(2 * bins + 2, 2)
    assert (np.diff(kept) > 0).all()
    finite = column[np.isfinite(column)]
    if len(finite):
        shown = column[kept][np.isfinite(column[kept])]
        assert shown.min() == finite.min()
        assert shown.max() == finite.max()
    if len(column) <= 2 * bins:
        assert len(kept) == len(column)
    else:
        edges = np.linspace(0, len(column), bins + 1).astype(int)
        for start, stop in itertools.pairwise(edges):
            part, chosen = column[start:stop], column[kept[(kept >= start) & (kept < stop)]]
            if np.isfinite(part).any():
                assert chosen[np.isfinite(chosen)].min() == part[np.isfinite(part)].min()
                assert chosen[np.isfinite(chosen)].max() == part[np.isfinite(part)].max()


def test_one_spike_in_many_steps_is_drawn() -> None:
    values = np.zeros(100_000)
    values[73_456] = 5.0
    values[12_345] = -3.0
    kept = thinning.extremes(values)
    assert {12_345, 73_456} <= set(kept.tolist())
    assert len(kept) <= 2 * thinning.BINS + 2


def test_averages_are_means_of_windows() -> None:
    step, values = np.arange(1.0, 101), np.arange(100.0) ** 2
    values[17] = math.nan
    found = thinning.averages(step, values, 7)
    assert len(found["step"]) == 15
    for i, mean in enumerate(found["mean"]):
        part = values[7 * i : 7 * i + 7]
        assert mean == pytest.approx(np.nanmean(part), rel=1e-4)
        assert found["least"][i] == pytest.approx(np.nanmin(part), rel=1e-4)
        assert found["largest"][i] == pytest.approx(np.nanmax(part), rel=1e-4)
    assert found["steps"][:2] == ["1-7", "8-14"]
    assert found["step"][0] == 4.0


def test_not_finite_is_marked_and_counted(run: Run) -> None:
    broken = dict(run.table)
    broken["grad_norm"] = run.table["grad_norm"].copy()
    broken["grad_norm"][[10, 50]] = [WRITTEN_NAN, math.inf]
    found = curve("grad_norm", [_with(run, broken)])
    assert found is not None
    assert found.data["gaps"] == {"step": [11.0, 51.0], "value": ["NaN", "infinite"], "run": ["one", "one"]}
    assert "Not finite at 2 steps, marked in red" in found.caption
    assert None in found.data["thin"]["value"]


def test_without_finite_values_there_is_no_figure(run: Run) -> None:
    assert curve("kl", [run]) is None
    assert curve("nowhere", [run]) is None


def test_captions_say_what_was_thinned() -> None:
    def long(steps: int) -> Run:
        table = {"step": np.arange(1.0, steps + 1), "reward": np.linspace(0, 1, steps)}
        from grposcope.core.run import Evaluations, Groups, Meta

        none = np.zeros(0, np.int64)
        groups = Groups(none, none, (), np.zeros(0), np.zeros(1, np.int64))
        evaluations = Evaluations(none, (), np.zeros(0), np.zeros(0), none, ())
        return Run(Meta(Path("run"), "grposcope", "run", "finished"), {}, table, groups, evaluations)

    def caption(steps: int) -> str:
        found = curve("reward", [long(steps)])
        assert found is not None
        return found.caption

    assert "Thick" not in caption(50)
    assert "Thick: mean of 4 steps; thin: every step." in caption(320)
    assert "Thick: mean of 1,250 steps; thin: smallest and largest of every 334 steps." in caption(100_000)


def _with(run: Run, table: dict[str, np.ndarray]) -> Run:
    return Run(run.meta, run.config, table, run.groups, run.evaluations, run.rollouts, run.phase, run.summary)


@pytest.mark.parametrize("kind", ["svg", "png"])
@pytest.mark.slow
def test_every_figure_is_exported(run: Run, tmp_path: Path, kind: str) -> None:
    found = document([run]).figures
    assert len({figure.name for figure in found}) == len(found) > 5
    found = found if kind == "svg" else found[:2]
    written = base.export(found, tmp_path / "made" / "here", kind)
    assert [path.name for path in written] == [f"{figure.name}.{kind}" for figure in found]
    for path in written:
        content = path.read_bytes()
        if kind == "png":
            assert content.startswith(b"\x89PNG")
            assert len(content) > 5_000
        else:
            assert b"var(--" not in content
            assert content.count(b"<path") > 2
            assert b"NaN" not in content


def test_exports_need_a_folder_that_can_be_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        base.export(document([run]).figures[:1], tmp_path / "file" / "inside", "svg")


def test_light_colours_are_those_of_the_page_and_the_dark_theme_has_them_all() -> None:
    """The dark theme stands twice, for those who ask their system for it and for those who ask the page."""
    css = (Path(page.__file__).parent / "assets" / "page.css").read_text()
    blocks = re.findall(r"\{([^{}]+)\}", css)[:3]
    light, system, asked = (dict(re.findall(r"--([a-z0-9-]+): ([^;]+);", block)) for block in blocks)
    assert base.LIGHT.items() <= light.items()
    assert system == asked
    assert base.LIGHT.keys() <= asked.keys()
    assert light.keys() - asked.keys() == {"sans", "mono"}


def test_colours_differ_until_they_run_out() -> None:
    """As many as are promised, each of its own in exported files, and the first again after the last."""
    shades = [base.LIGHT[base.colour(i)[len("var(--") : -1]] for i in range(base.COLOURS)]
    assert len(set(shades)) == base.COLOURS >= 10
    assert base.colour(base.COLOURS) == base.colour(0)


@pytest.fixture(scope="module")
def figures(run: Run, tmp_path_factory: pytest.TempPathFactory) -> list[Figure]:
    """Those of pages about one run, two runs, probes over the steps of a run, a probe alone, and several probes."""
    place = synthetic.make(tmp_path_factory.mktemp("runs") / "probed", steps=40, settings={"group": 9})
    for seed, step in ((1, 0), (2, 40)):
        synthetic_probe.make(place / "probes" / f"step-{step:06d}", seed=seed)
    probed = read(place)
    probe = read(synthetic_probe.make(tmp_path_factory.mktemp("probes") / "one", seed=3))
    pages = ([run], [probed], [probe], [run, probed], [probed, probe])
    return [figure for runs in pages for figure in document(list(runs)).figures]


@pytest.mark.slow
def test_specifications_are_valid_vega_lite(figures: list[Figure]) -> None:
    """One that has each form of layer: those that differ in text and numbers alone are valid or invalid together."""
    alt.Config(**base.THEME)
    seen: set[str] = set()
    for figure in figures:
        parts = {form(part) for part in (*figure.spec["layer"], {**figure.spec, "layer": []})}
        if parts - seen:
            alt.LayerChart.from_dict(dict(figure.spec), validate=True)
        seen |= parts


def form(part: Any) -> str:
    """A part of a specification with one word for all numbers, columns, colours and text for readers."""
    free = {"title", "text", "field", "name", "description", "calculate", "test", "expr", "labelExpr", "value"}

    def told(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: told(v, k) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return sorted({json.dumps(told(one, key), sort_keys=True) for one in value})
        chosen = isinstance(value, str) and key not in free | {"domain", "range"}
        return value if chosen or isinstance(value, bool) else type(value).__name__

    return json.dumps(told(part), sort_keys=True)


@pytest.mark.slow
def test_specifications_name_only_columns_that_exist(figures: list[Figure]) -> None:
    assert len({figure.name for figure in figures}) >= 30
    for figure in figures:
        for columns in figure.data.values():
            assert len({len(column) for column in columns.values()}) == 1
        for layer in figure.spec["layer"]:
            encodings = [one for one in layer["encoding"].values() if isinstance(one, dict)] + layer["encoding"].get(
                "tooltip", []
            )
            named = {encoding["field"] for encoding in encodings if "field" in encoding}
            assert named <= figure.data[layer["data"]["name"]].keys(), figure.name


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["diagnose", "RUN"], ["watch", "RUN", "--once"]])
def test_altair_is_imported_for_pages_alone(tmp_path: Path, words: list[str]) -> None:
    """Its import takes a quarter of a second."""
    place = synthetic.make(tmp_path / "run", steps=40)
    code = """import sys
from grposcope.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code
sys.exit("altair" in sys.modules)"""
    words = [str(place) if word == "RUN" else word for word in words]
    assert subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_specifications_name_only_colours_that_exist(figures: list[Figure]) -> None:
    text = json.dumps([figure.spec for figure in figures])
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", text)) <= base.LIGHT.keys()
