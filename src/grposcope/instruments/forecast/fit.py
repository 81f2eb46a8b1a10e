"""The reward curve, in one place: fit a closed form, forecast the level.

fit(steps, reward, model="inertial")      parameters with standard errors             instruments/forecast/curves.py
noise_ceiling(steps, reward)              the R² that is left to explain              instruments/forecast/curves.py
forecast(steps, reward, horizon)          level, band, verdict                        instruments/forecast/forecast.py
"""

from __future__ import annotations

from grposcope.instruments.forecast.curves import Fit, fit, noise_ceiling
from grposcope.instruments.forecast.forecast import Forecast, forecast

__all__ = ["Fit", "Forecast", "fit", "forecast", "noise_ceiling"]
