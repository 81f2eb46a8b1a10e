"""Where verl says whether and how it penalises the KL to a reference: a switch and a coefficient, twice."""

from __future__ import annotations

from grposcope.signs.settings.verl import ACTOR, VALIDATE

IN_LOSS, LOSS_COEFFICIENT = ACTOR + "use_kl_loss", ACTOR + "kl_loss_coef"
IN_REWARD, REWARD_COEFFICIENT = "algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef"

PENALTIES = ((IN_LOSS, LOSS_COEFFICIENT), (IN_REWARD, REWARD_COEFFICIENT))
"""Switch and coefficient of each penalty."""

SOURCE = "https://verl.readthedocs.io/en/latest/algo/grpo.html; " + VALIDATE
