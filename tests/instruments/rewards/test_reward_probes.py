"""What each reward and constraint moves, over the probes of a run: against autograd, in our loop and in TRL."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import config
from tiny_policies import make_policy, policy
from torch import Tensor

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.instruments.rewards import answer, found, probe_file
from grposcope.instruments.rewards.probe_file import RewardProbe
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.logprobs import token_logprobs
from grposcope.lab.train import loop, probes
from grposcope.logs import read
from grposcope.render.terminal import text

__all__ = ["make_policy", "policy"]

LENGTHS = """
def letters(completions, **columns):
    return [sum(c.isalpha() for c in text) / max(len(text), 1) for text in completions]

def digits(completions, **columns):
    return [float(any(c.isdigit() for c in text)) for text in completions]
"""


def z(values: Tensor) -> Tensor:
    """Standardized within groups."""
    deviation = values.std(1, keepdim=True)
    return torch.where(deviation > 0, (values - values.mean(1, keepdim=True)) / (deviation + 1e-4), 0.0)


def by_autograd(model: Any, rollouts: RolloutBatch, parts: Tensor, rows: Tensor) -> Tensor:
    """Gradients (p, K, D) of parts (P, G, K) of the advantages on the prompts of `rows`, GRPO's loss, no shortcut."""
    group = rollouts.groups[1]
    weights = [p for p in model.parameters() if p.requires_grad]
    made = []
    for rows_of in rows.reshape(-1, group):
        own = []
        for j in range(parts.shape[-1]):
            model.zero_grad()
            logp, _ = token_logprobs(model, rollouts, rows_of)
            a = parts.reshape(-1, parts.shape[-1])[rows_of, j].to(logp)
            mean = (logp * rollouts.mask[rows_of][:, : logp.shape[1]]).sum(1) / rollouts.lengths[rows_of]
            loss = -(a * mean).sum() / group
            grads = torch.autograd.grad(loss, weights, allow_unused=True)
            flat = [torch.zeros(w.numel()) if g is None else g.reshape(-1) for g, w in zip(grads, weights, strict=True)]
            own.append(torch.cat(flat))
        made.append(torch.stack(own))
    model.zero_grad()
    return torch.stack(made).double()


@pytest.mark.parametrize("aggregation", [None, "standardized_components"])
def test_products_are_those_of_autograd(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aggregation: str | None, capsys: Any
) -> None:
    """The gradient of each reward's and the constraint's part of the advantage alone; then shares, cosines, page."""
    given = config(policy, tmp_path, steps=3, eval_problems=0, threads=1, checkpoint_every=0, rollouts_every=0)
    (tmp_path / "rewards.py").write_text(LENGTHS)
    reward = f"{tmp_path / 'rewards.py'}:letters,digits=0.5"
    whole, seen = probes.components, []

    def spy(setup: Any, step: int, rollouts: RolloutBatch, credit: Tensor, penalties: Any, measured: Any, rows: Tensor,
            folder: Path) -> None:  # fmt: skip
        whole(setup, step, rollouts, credit, penalties, measured, rows, folder)
        assert rollouts.components is not None
        letters, digits = rollouts.components.unbind(-1)
        if aggregation is None:
            total = rollouts.rewards
            scale = torch.where(z(total) != 0, 1 / (total.std(1, keepdim=True) + 1e-4), 0.0)
            parts = [scale * w * (r - r.mean(1, keepdim=True)) for w, r in ((1.0, letters), (0.5, digits))]
        else:
            parts = [z(letters), 0.5 * z(digits)]
        lengths = rollouts.lengths.double().reshape(rollouts.rewards.shape)
        multiplier = sum(0.5 * (mean / 2 - 1) for mean in lengths_before)
        if multiplier:
            parts.append(-multiplier * z(lengths))
        lengths_before.append(float(lengths.mean()))
        own = by_autograd(setup.policy.model, rollouts, torch.stack(parts, -1), rows)
        seen.append((step, torch.einsum("pjd,qkd->jkpq", own, own).numpy()))

    lengths_before: list[float] = []
    monkeypatch.setattr(probes, "components", spy)
    loop.train(replace(
        given, reward=reward, aggregation=aggregation, constraint="length<=2", dual_rate=0.5, probe_every=1,
        prompts=4, group=6, probe_prompts=3,
    ))  # fmt: skip
    made = probe_file.in_folder(tmp_path / "run")
    assert [one.step for one in made] == [step for step, _ in seen]
    assert [one.names for one in made] == [("letters", "digits"), *[("letters", "digits", "length<=2")] * 2]
    for one, (_, products) in zip(made, seen, strict=True):
        np.testing.assert_allclose(one.products, products, rtol=2e-3, atol=2e-3 * np.abs(products).max())

    run = read(tmp_path / "run")
    moved = found.probed(run)
    assert moved is not None
    every = [np.zeros((3, 3, *one.shape[2:])) for _, one in seen]
    for whole_products, (_, products) in zip(every, seen, strict=True):
        whole_products[: len(products), : len(products)] = products
    off = [~np.eye(one.shape[-1], dtype=bool) for one in every]
    pooled = sum(one[:, :, mask].mean(-1) for one, mask in zip(every, off, strict=True))
    shares = pooled.sum(1) / pooled.sum() if pooled.sum() > 0 else np.full(3, np.nan)  # not told from noise
    np.testing.assert_allclose([one.value for one in moved.shares], shares, rtol=2e-2, atol=1e-3)
    assert main(["rewards", str(tmp_path / "run"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["gradient"]["shares"].keys() == {"letters", "digits", "length<=2"}
    assert document["gradient"]["steps"] == [1, 2, 3]


def synthetic(step: int, angle: float, noise: float = 0.1, names: tuple[str, ...] = ("a", "b")) -> RewardProbe:
    """A probe of six prompts whose components have gradients at this angle."""
    rng = np.random.default_rng(step)
    axes = np.array([[1.0, 0, 0], [np.cos(angle), np.sin(angle), 0], [0, 0, 1.0]])[: len(names)]
    own = axes + noise * rng.normal(size=(6, len(names), 3))
    return RewardProbe(step, names, len(names) - 2, np.einsum("pjd,qkd->jkpq", own, own))


def test_rewards_that_pull_against_each_other_are_named(tmp_path: Path) -> None:
    import synthetic as logs

    folder = logs.make(tmp_path / "run", steps=30)
    rng = np.random.default_rng(0)
    lines = [json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines()]
    for row in lines:
        row["components"] = {name: rng.random(len(row["rewards"])).tolist() for name in "ab"}
    (folder / "groups.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    for step in (1, 11):
        probe_file.write(folder, synthetic(step, 2.2))
    probe_file.write(folder, synthetic(21, 2.2, names=("a", "b", "length<=9")))
    run = read(folder)
    moved = found.probed(run)
    assert moved is not None
    assert (moved.prompts, moved.steps, moved.names) == (18, (1, 11, 21), ("a", "b", "length<=9"))
    low, high = moved.cosine(0, 1).interval()
    assert low - 0.05 < np.cos(2.2) < high + 0.05
    assert sum(one.value for one in moved.shares) == pytest.approx(1)
    said = answer.answers([run], answer.RewardSettings())[0]
    shown = text(said)
    assert "The gradients of a and b oppose each other: their cosine is -0.6" in shown
    assert "Of 3 probes at steps 1 to 21, added up, 18 prompts" in " ".join(shown.split())
    assert not any("inner products" in line for line in said.missing)


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    path = probe_file.write(tmp_path, synthetic(3, 1.0))
    whole = probe_file.read(path)
    np.testing.assert_array_equal(whole.products, synthetic(3, 1.0).products)
    assert probe_file.in_folder(tmp_path)[0].names == whole.names
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match="cannot be read"):
        probe_file.in_folder(tmp_path)
    arrays = {"format": 1, "step": 3, "names": ["a", "b"], "constraints": [False, False]}
    for products, said in ((np.ones((2, 2, 3)), "shape"), (np.full((2, 2, 3, 3), np.nan), "not finite")):
        np.savez(path, **arrays, products=products)
        with pytest.raises(UserError, match=said):
            probe_file.read(path)
    np.savez(path, **{**arrays, "format": 9})
    with pytest.raises(UserError, match="newer than 1"):
        probe_file.read(path)
    np.savez(path, **arrays)
    with pytest.raises(UserError, match="has no array 'products"):
        probe_file.read(path)
