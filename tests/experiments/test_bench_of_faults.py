"""Three faults of the bench end to end: trained, twin trained, judged, named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("trl")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "claim", "needs"),
    [
        ("ddof 0 (ours)", "advantages", "rollouts"),
        ("end of text masked (trl)", "tokens", "rollouts"),
        ("stale sampler (ours)", "checkpoints", "checkpoints"),
    ],
)
def test_a_fault_is_seen_and_its_twin_is_not(
    name: str, claim: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks" / "faults"), *sys.path])
    import catalogue
    import run

    (fault,) = [one for one in catalogue.FAULTS if one.key == name]
    found = run.bench(fault, tmp_path, {})
    assert claim in found["broken"]
    assert found["named"]
    assert found["needs"] == needs
    assert found["size"] > 0.01
    assert found["rollouts"] == 64
    assert not found["twin broken"]


def test_the_faults_have_names_of_their_own_and_claims_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks" / "faults"), *sys.path])
    import catalogue

    from grposcope.faults.catalogue import proofs

    keys = [fault.key for fault in catalogue.FAULTS]
    assert len(set(keys)) == len(keys) >= 24
    assert {name for fault in catalogue.FAULTS for name in fault.claims} <= {proof.name for proof in proofs()}
