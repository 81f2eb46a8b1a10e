"""How the choice of a correction is worded."""

from __future__ import annotations

import pytest

from grposcope.core.estimate import Estimate
from grposcope.instruments.offpolicy import answer
from grposcope.instruments.offpolicy.answer import OffPolicyFound
from grposcope.instruments.offpolicy.distance import Distance, KeptWeight
from grposcope.instruments.offpolicy.error import CorrectionChoice
from grposcope.maths.corrections import ALL, FORMS

ONE = Estimate(1.0, 0.0, 9)
FAR = Distance(ONE, ONE, ONE, 0.5, ONE, ONE, 1.0, 0.1)


def kept(weight: float, thirds: tuple[float, float, float] | None) -> KeptWeight:
    return KeptWeight(Estimate(weight, 0.01, 9), 0.5, 0.1, thirds, None)


def test_every_correction_has_its_advice_with_its_bounds() -> None:
    assert set(answer.ADVICE) == set(FORMS) - {"none"}
    for one in ALL[1:]:
        said = answer._choice(CorrectionChoice(one.name, 0.4, (0.3, 0.5)))
        assert "{" not in said
        for bound in one.name.partition(":")[2].split(","):
            assert bound in said.partition("(")[0]
        assert "this needs 0.40 × the rollouts" in said


@pytest.mark.parametrize(
    ("thirds", "said"),
    [((0.8, 0.5, 0.2), "mostly of long"), ((0.2, 0.5, 0.8), "mostly of short"), ((0.4, 0.4, 0.41), ""), (None, "")],
)
def test_a_band_says_what_it_drops(thirds: tuple[float, float, float] | None, said: str) -> None:
    weights = {"sequence_cap:2": kept(0.9, None), "geometric_band:0.999,1.001": kept(0.39, thirds)}
    text = answer._worth(OffPolicyFound(FAR, weights, choice=CorrectionChoice("sequence_cap:2", 0.4)))
    assert text.startswith("Cap the sequence ratio at 2 (sequence_cap:2): this needs 0.40 ×")
    assert "geometric_band:0.999,1.001 drops 61% of the weight" in text
    assert "sequence_cap:2 drops" not in text
    assert ("mostly" in text) == bool(said)
    assert said in text
