"""pass@k of one problem from n completions, c of them right: the unbiased estimate and its variance over completions.

With p the chance that a completion is right, pass@k is 1 − (1 − p)^k, and its unbiased estimate is the share of the
subsets of k completions that hold a right one,

    1 − q,   q = C(n − c, k) / C(n, k)                      (arXiv:2107.03374)

a U-statistic of order k. Its variance for a given problem is E q² − (1 − p)^2k, and (1 − p)^2k has the unbiased
estimate C(n − c, 2k) / C(n, 2k) as soon as n ≥ 2k, so

    q² − C(n − c, 2k) / C(n, 2k)

is unbiased for the variance; for k = 1 it is p̂(1 − p̂)/(n − 1). It may be negative for one problem: average it over
problems.
"""

from __future__ import annotations

from math import comb

from grposcope.core.errors import UserError


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Chance that at least one of k completions drawn without replacement from n is right.

    UserError unless 1 ≤ k ≤ n and 0 ≤ correct ≤ n.
    """
    if not 1 <= k <= n:
        raise UserError(f"pass@{k} cannot be computed from {n} completions; take a k from 1 to {n}, or draw more")
    if not 0 <= correct <= n:
        raise UserError(f"{correct} of {n} completions cannot be right; give a number from 0 to {n}")
    return 1.0 - comb(n - correct, k) / comb(n, k)
