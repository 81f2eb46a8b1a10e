"""The share of dead groups to be expected lives in `grposcope.ustat.binomial`; its names are kept here for the page."""

from grposcope.ustat.binomial import Counts, alike, observed, plugged_in, predicted, subsets

__all__ = ["Counts", "alike", "observed", "plugged_in", "predicted", "subsets"]
