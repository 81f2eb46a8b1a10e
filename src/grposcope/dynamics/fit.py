"""Curves through a reward, in one place: fit one model, compare all, find phases, forecast.

fit(steps, reward, model="inertial")      parameters with standard errors             timeseries/curves.py
noise_ceiling(steps, reward)              the R² that is left to explain              timeseries/curves.py
compare(steps, reward)                    models ranked on later steps not seen       timeseries/model_comparison.py
phases(steps, reward)                     slow start, rise, plateau                   timeseries/phases.py
forecast(steps, reward, horizon)          mean, interval, plateau, value of going on  timeseries/forecast.py
"""

from __future__ import annotations

from grposcope.timeseries.curves import Fit, fit, noise_ceiling
from grposcope.timeseries.forecast import Forecast, forecast
from grposcope.timeseries.model_comparison import Comparison, compare
from grposcope.timeseries.phases import Phase, phases

__all__ = ["Comparison", "Fit", "Forecast", "Phase", "compare", "fit", "forecast", "noise_ceiling", "phases"]
