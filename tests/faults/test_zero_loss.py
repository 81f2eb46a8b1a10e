"""The rule of zero loss: what it flags, and what it leaves alone."""

from __future__ import annotations

import synthetic_series as made

from grposcope.instruments.diagnosis import diagnose


def test_zero_loss_with_a_gradient_is_explained_not_flagged() -> None:
    finding = next(f for f in diagnose(made.run(made.healthy())) if f.fault == "zero loss")
    assert finding.status == "excluded"
    assert "by construction" in finding.because
