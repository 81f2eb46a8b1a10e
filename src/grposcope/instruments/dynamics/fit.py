"""The reward curve, in one place: fit a closed form, forecast the level.

fit(steps, reward, model="inertial")      parameters with standard errors             instruments/dynamics/curves.py
noise_ceiling(steps, reward)              the R² that is left to explain              instruments/dynamics/curves.py
forecast(steps, reward, horizon)          level, band, verdict                        instruments/dynamics/forecast.py
"""

from __future__ import annotations

from grposcope.instruments.dynamics.curves import Fit, fit, noise_ceiling
from grposcope.instruments.dynamics.forecast import Forecast, forecast

__all__ = ["Fit", "Forecast", "fit", "forecast", "noise_ceiling"]
