"""Diagnosis of a run: what is wrong, since when, how sure that is, and what to do; one rule per failure mode."""

from grposcope.diagnosis.diagnose import diagnose
from grposcope.diagnosis.findings import Evidence, Finding, Rule

__all__ = ["Evidence", "Finding", "Rule", "diagnose"]
