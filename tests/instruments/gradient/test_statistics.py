"""A statistic that is registered in one line appears in probe.json, in the terminal and on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from asked import asked

from grposcope import cli
from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient import answer as geometry
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient import statistics
from grposcope.instruments.gradient.probe import Probe
from grposcope.logs import read


def test_a_toy_statistic_appears_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def longest(probe: Probe) -> dict[str, Estimate]:
        return {"tokens": Estimate.mean([float(n) for n in probe.mask.sum(-1)])}

    monkeypatch.setitem(statistics.STATISTICS, "completion_length", longest)
    monkeypatch.setitem(statistics.STATISTICS, "solved", lambda probe: 0.125)
    out = tmp_path / "probe"
    status, document = asked("probe", "--prompts", "4", "--group", "4", "--threads", "1", "--out", out)
    assert status == 0
    text = capsys.readouterr().out
    printed = document["statistics"]
    assert json.loads((out / "probe.json").read_text())["statistics"] == printed
    assert json.loads((out / "probe.json").read_text())["solved"] == 0.125, "the house's own go the same way"
    length = Estimate(**printed["completion_length"]["tokens"])
    assert length.n == 16
    assert re.search(rf"completion_length +tokens +{length.value:.3g} \(", text)
    run = read(out)
    assert probes.of_run(run)[0].statistics["completion_length"]["tokens"] == length
    section = geometry._section([run])
    assert section is not None
    table = next(table for table in section.tables if table.title == "Further statistics")
    shown = [(*row[:2], row[2].split()[0]) for row in table.rows]
    assert ("completion_length", "tokens", f"{length.value:.3g}") in shown


def test_the_stable_rank_of_a_block_is_the_mean_over_its_matrices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "probe"
    assert cli.main(["probe", "--prompts", "4", "--group", "4", "--threads", "1", "--out", str(out)]) == 0
    (record,) = probes.of_run(read(out))
    blocks = record.statistics["stable_rank_by_block"]
    assert set(blocks) == {"0", "1", "2", "3"}
    for block, estimate in blocks.items():
        ranks = [one.spectra["grpo"].ranks["stable"] for one in record.layers if one.depth == int(block)]
        assert estimate == Estimate.mean(ranks)
    assert "stable_rank_by_block  0" in capsys.readouterr().out
