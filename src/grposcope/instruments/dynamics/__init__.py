"""How a run moves: where its reward goes, how long rollouts may be reused, and the bandits in which theory is tested.

oscillator     a run as a damped oscillator about the optimum; refresh: rollouts drawn every N steps
constant_lag   gradients that are all K steps old; sampled_refresh: curvature that varies over batches
noise          by how much a run swings about its end
stability      the update rule of a run, and the check of its interval and lag
bandit         softmax bandits, batched over runs; count_advantages: advantages by the number of successes
curves         a curve through a reward, and which; fit: what `grposcope.dynamics` promises of these
forecast       where the reward will be, with its interval; reward_curve, reward_range: what is known of the reward

NumPy and SciPy only.
"""

from dataclasses import dataclass

from grposcope.core.instrument import Command, Instrument


@dataclass(frozen=True)
class ForecastSettings:
    """What is forecast.

    horizon: steps to forecast, None for half of those seen. coverage: probability of the interval. until: the last step
    to be seen, None for all.
    """

    horizon: float | None = None
    coverage: float = 0.9
    until: float | None = None


FORECAST = Instrument(
    "forecast",
    "Where is the reward going?",
    answers="grposcope.instruments.dynamics.forecast_answer",
    settings=ForecastSettings,
    commands=(
        Command(
            "fit",
            "plan the next one",
            "fit and forecast the reward curve of a run",
            "grposcope.instruments.dynamics.command_fit",
        ),
    ),
)
STABILITY = Instrument(
    "stability",
    "How long may rollouts be reused?",
    answers="grposcope.instruments.dynamics.stability_answer",
    commands=(
        Command(
            "stability",
            "plan the next one",
            "how long rollouts may be reused before training blows up",
            "grposcope.instruments.dynamics.command_stability",
        ),
    ),
)
BANDIT = Instrument(
    "bandit",
    "Does the closed form hold?",
    commands=(
        Command(
            "simulate",
            "plan the next one",
            "sweep softmax bandits under GRPO and compare with the closed form",
            "grposcope.instruments.dynamics.command_simulate",
        ),
    ),
)
INSTRUMENTS = (FORECAST, STABILITY, BANDIT)
