"""Curves through a reward, in one place: fit one model, compare all, find phases, forecast.

fit(steps, reward, model="inertial")      parameters with standard errors             curves.py
bootstrap(fitted, steps, reward)          refits of resampled residuals, batched      curves.py
noise_ceiling(steps, reward)              the R² that is left to explain              curves.py
compare(steps, reward)                    ranked on later steps not seen              compare.py
phases(steps, reward)                     slow start, rise, plateau                   phases.py
forecast(steps, reward, horizon)          mean, interval, plateau, value of going on  forecast.py
"""

from __future__ import annotations

from grposcope.timeseries.curves import Fit, bootstrap, fit, noise_ceiling
from grposcope.timeseries.forecast import Forecast, forecast
from grposcope.timeseries.model_comparison import Comparison, compare
from grposcope.timeseries.phases import Phase, phases

__all__ = [
    "Comparison",
    "Fit",
    "Forecast",
    "Phase",
    "bootstrap",
    "compare",
    "fit",
    "forecast",
    "noise_ceiling",
    "phases",
]
