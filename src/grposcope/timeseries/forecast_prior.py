"""Constants of the forecast, learned from public runs by `experiments/dynamics_forecast.py`."""

from grposcope.timeseries.level_path import Prior

LEARNED = Prior(temper=0.4, keep=0.3, spread=0.8)
