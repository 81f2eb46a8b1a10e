"""The parts of `benchmarks/gpu/run.py`: each checks or measures one thing on one device and returns figures.

A part is a function of a `Place`; the last word of the name of a checking part is the number format, the first of a
measuring part is the model. Times are medians, with the device synchronized before and after; memory is the peak of
what PyTorch held on a GPU, and of the process on a CPU. Every number a part returns has its unit in its name.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the other benchmarks
import families
from peak_memory import peak_memory, reset_peak

from grposcope.core.errors import UserError
from grposcope.instruments.credit import frontier
from grposcope.instruments.credit.frontier import CreditBudget
from grposcope.instruments.gradient import backward, gram, probe
from grposcope.instruments.offpolicy import from_model
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.policies.load import TINY
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.rollouts import collect, generator
from grposcope.lab.sampling.sampler import Sampling, sample
from grposcope.lab.tasks import Problem, Task
from grposcope.lab.train import checkpoint, loop, setup
from grposcope.lab.train import optimizer as optimizers
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.update import TokenTerms, update

Figures = dict[str, Any]


class Absent(Exception):
    """A package or weights that a part needs and this machine lacks."""


class Wrong(Exception):
    """A check that failed, with its figure."""


@dataclass(frozen=True)
class Shape:
    """A random Llama: width, layers, width inside, heads, heads of keys, whether the head is the embedding."""

    width: int
    layers: int
    inside: int
    heads: int
    kept: int
    tied: bool
    vocabulary: int = 151_936


SHAPES = {
    "0.5B": Shape(896, 24, 4864, 14, 2, True),
    "1.5B": Shape(1536, 28, 8960, 12, 2, True),
    "3B": Shape(2048, 36, 11008, 16, 2, True),
    "7B": Shape(3584, 28, 18944, 28, 4, False),
    "small": Shape(32, 2, 64, 4, 2, True, 512),
}
"""Shapes of Qwen2.5, as a Llama with random weights, and one for tests."""

SHIPPED = ("tiny", "smollm2")


@dataclass(frozen=True)
class Place:
    """Where and how large. prompts × group rollouts of `tokens` tokens; rounds: repetitions that count."""

    device: str
    prompts: int = 4
    group: int = 8
    tokens: int = 128
    rounds: int = 3

    def synchronize(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def timed(self, work: Callable[[], object]) -> Figures:
        """Median seconds of `work`, after one call that warms up, and the peak memory of all of them."""
        work()
        self.synchronize()
        reset_peak(self.device)
        seconds = []
        for _ in range(self.rounds):
            began = time.perf_counter()
            work()
            self.synchronize()
            seconds.append(time.perf_counter() - began)
        return {"seconds": statistics.median(seconds), "least_seconds": min(seconds),
                "peak_gb": peak_memory(self.device)}  # fmt: skip


SMALL = {"prompts": 3, "group": 4, "tokens": 8, "rounds": 1}
"""Sizes for a CPU."""


class Hashed(Task):
    """A task whose rewards are 0 or 1 by a hash of the completion and its number, so that groups of any model are live.

    The number, because a random model writes ids that the shipped tokenizer does not have: its texts are mostly empty.
    """

    name = "hashed"

    def __init__(self) -> None:
        self.inner = tasks.load("arithmetic")
        self.graded = itertools.count()

    def problems(self, split: Any) -> Any:
        return self.inner.problems(split)

    def reward(self, problem: Problem, completion: str) -> float:
        return float(hashlib.sha256(f"{next(self.graded)} {completion}".encode()).digest()[0] & 1)


def policy_of(model: str, place: Place) -> Policy:
    """The model of a part: shipped ones in float32, random ones in bfloat16. Absent where there is no such file."""
    if model in SHIPPED:
        try:
            return policies.load(model, torch.float32, place.device)
        except (UserError, ImportError, OSError) as error:
            raise Absent(str(error)) from None
    shape, tokenizer = SHAPES[model], AutoTokenizer.from_pretrained(TINY)
    bytes_needed = 2.0 * _parameters(shape)
    free = policies.available_memory(torch.device(place.device))
    if bytes_needed > 0.9 * free:
        raise Absent(f"the weights alone take {bytes_needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")
    config = LlamaConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.width, num_hidden_layers=shape.layers,
        intermediate_size=shape.inside, num_attention_heads=shape.heads, num_key_value_heads=shape.kept,
        tie_word_embeddings=shape.tied, max_position_embeddings=4096, bos_token_id=0, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(place.device):
            made: Any = LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():  # a wide random model with a tied head repeats its last token: equal texts, equal rewards
        made.model.norm.weight.fill_(0.1)
    return Policy(model, made, tokenizer, torch.tensor([-1], device=place.device), 0)


def _parameters(shape: Shape) -> int:
    head = shape.width // shape.heads
    attention = shape.width * (2 * shape.width + 2 * shape.kept * head)
    return shape.layers * (attention + 3 * shape.width * shape.inside) + (2 - shape.tied) * (
        shape.vocabulary * shape.width
    )


def drawn(policy: Policy, place: Place) -> RolloutBatch:
    """Rollouts of exactly the limit's length, graded so that groups are live."""
    endless = replace(policy, eos=torch.tensor([-1], device=place.device))
    task = Hashed()
    shape = (place.prompts, place.group)
    return collect(
        endless, task, task.problems("train"), recipes.GRPO, Sampling(place.tokens), shape, seed=0, position=0
    ).rollouts


# Correctness


def probe_against_autograd(place: Place, dtype: torch.dtype) -> Figures:
    """The Gram matrix of four families against gradients by autograd, one rollout at a time, in float32."""
    worst: Figures = {}
    rollouts = families.batch().to(place.device)
    for name in ("gpt2", "llama", "gemma2", "qwen3_moe" if "qwen3_moe" in families.FAMILIES else "mixtral"):
        exact = families.build(name).to(place.device)
        wanted = families.by_autograd(exact, rollouts)
        attached = backward.attach(model := families.build(name, dtype).to(place.device), rollouts)
        total: Any = 0.0

        def add(score: Any) -> None:
            nonlocal total
            total = total + gram.gram(score).cpu()

        attached.stream(rollouts, add)
        theirs = sum((g @ g.mT).cpu() for n, g in wanted.items() if n in attached.measured)
        worst[name] = float(torch.linalg.norm(total - theirs) / torch.linalg.norm(theirs))
        del model
    allowed = 1e-4 if dtype == torch.float32 else 0.1
    return _checked({f"difference_{name}": value for name, value in worst.items()}, max(worst.values()), allowed)


def resume(place: Place, dtype: torch.dtype) -> Figures:
    """Weights after four steps in one go, and in two halves with a checkpoint between: relative to the way they went.

    On a GPU sums of many threads come in any order, so that the last bits may differ.
    """
    with tempfile.TemporaryDirectory() as scratch:
        common: dict[str, Any] = {
            "prompts": 8, "group": 4, "eval_every": 0, "eval_problems": 2, "seed": 1,
            "device": place.device, "dtype": str(dtype).removeprefix("torch."), "schedule": "constant",
            "checkpoint_every": 2, "lr": 1e-3,
        }  # fmt: skip
        loop.train(TrainConfig(steps=4, out=f"{scratch}/whole", **common))
        loop.train(TrainConfig(steps=2, out=f"{scratch}/halves", **common))
        loop.resume(Path(f"{scratch}/halves"), {"steps": 4})
        ends = [policies.load(f"{scratch}/{run}/model", torch.float64) for run in ("whole", "halves")]
        start = policies.load("tiny", dtype)
        start.model.to(torch.float64)
        moved, apart = (
            math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(*(m.model.parameters() for m in two))))  # noqa: B905
            for two in ((start, ends[0]), ends)
        )
        kept = checkpoint.steps(Path(f"{scratch}/halves"))
    if not moved > 0 or not kept:
        raise Wrong("nothing was trained, or no checkpoint was kept")
    allowed = 1e-2 if place.device == "cpu" else 0.1
    return _checked({"difference_of_the_way": apart / moved}, apart / moved, allowed)


def sampler_against_update(place: Place, dtype: torch.dtype) -> Figures:
    """Log-probabilities of the tokens when they were drawn, and those that an update computes: the largest mean gap."""
    policy = policies.load("tiny", dtype, place.device)
    rollouts = drawn(policy, place)
    again = frozen_logprobs(policy.model, rollouts, 1.0, setup.micro_batch(policy, place.tokens))
    gap = (again.double() - rollouts.logp.double()).abs()[rollouts.mask]
    allowed = 1e-4 if dtype == torch.float32 else 0.02
    figures = {"mean_gap_nats": float(gap.mean()), "largest_gap_nats": float(gap.max())}
    return _checked(figures, figures["mean_gap_nats"], allowed)


def _checked(figures: Figures, value: float, allowed: float) -> Figures:
    """The figures with what was allowed; Wrong where the value is more, or no number."""
    if not value <= allowed:
        raise Wrong(f"{value:.2g} is more than the {allowed:g} allowed ({figures})")
    return {**figures, "allowed": allowed}


CHECKS: dict[str, Callable[[Place, torch.dtype], Figures]] = {
    "probe against autograd": probe_against_autograd,
    "resume": resume,
    "sampler against update": sampler_against_update,
}


# Speed and memory


def sampling(policy: Policy, place: Place) -> Figures:
    """The house's sampler and Hugging Face's `generate`, on the same prompts and as many tokens."""
    ids, mask = prompts_of(policy, place)
    never, settings = torch.tensor([-1], device=place.device), Sampling(place.tokens)

    def ours() -> None:
        stream = generator(0, "benchmark", device=place.device)
        sample(policy.model, (ids, mask), place.group, settings, never, policy.pad, stream)

    def theirs() -> None:
        policy.model.generate(
            input_ids=ids, attention_mask=mask.long(), do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            num_return_sequences=place.group, min_new_tokens=place.tokens, max_new_tokens=place.tokens,
            pad_token_id=policy.pad,
        )  # fmt: skip

    found, other = place.timed(ours), place.timed(theirs)
    count = place.prompts * place.group * place.tokens
    return {**found, "tokens_per_second": count / found["seconds"], "generate_seconds": other["seconds"],
            "generate_peak_gb": other["peak_gb"]}  # fmt: skip


def prompts_of(policy: Policy, place: Place) -> Any:
    task = Hashed()
    return policies.encode(policy, [p.prompt for p in task.problems("train")[: place.prompts]], task.instruction)


def vllm(policy: Policy, place: Place) -> Figures:
    """The same completions by vLLM, in a process of its own."""
    if find_spec("vllm") is None:
        raise Absent("vLLM is not installed")
    from sampling import OtherProcess

    ids, mask = prompts_of(policy, place)
    prompts = [row[keep].tolist() for row, keep in zip(ids.cpu(), mask.cpu(), strict=True)]
    dtype = str(policy.model.dtype).removeprefix("torch.")
    with tempfile.TemporaryDirectory() as folder:
        policy.model.save_pretrained(folder)
        policy.tokenizer.save_pretrained(folder)
        policy.model.to("cpu")
        if place.device != "cpu":
            torch.cuda.empty_cache()
        other = OtherProcess(sys.executable, folder, dtype, ids.shape[1] + place.tokens, torch.get_num_threads())
        try:
            seconds = [other.seconds(prompts, place.group, place.tokens) for _ in range(place.rounds + 1)][1:]
        except SystemExit as error:
            raise RuntimeError(str(error)) from None
        finally:
            other.close()
    median = statistics.median(seconds)
    return {"seconds": median, "tokens_per_second": place.prompts * place.group * place.tokens / median}


def step(policy: Policy, place: Place) -> Figures:
    """An update with AdamW and a learning rate of 0."""
    rollouts = drawn(policy, place)
    needed = 3.0 * sum(p.numel() * p.element_size() for p in policy.model.parameters())  # gradient, two moments
    free = policies.available_memory(torch.device(place.device))
    if needed > 0.95 * free:
        raise Absent(f"gradient and AdamW take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")
    optimizer = optimizers.build(policy.model.parameters(), 0.0, TrainConfig())
    size = setup.micro_batch(policy, place.tokens)
    terms = TokenTerms(recipes.GRPO.token_advantages(rollouts))
    found = place.timed(lambda: update(policy.model, optimizer, recipes.GRPO, rollouts, terms, 1.0, 1.0, size))
    return {**found, "micro_batch": size, "tokens_per_second": int(rollouts.mask.sum()) / found["seconds"]}


def measured(policy: Policy, place: Place) -> Figures:
    """A probe with the self-check and one without, a plain pass, and the memory that was predicted."""
    rollouts = drawn(policy, place)
    ids = torch.cat((rollouts.prompt_ids, rollouts.tokens), 1)

    def plain() -> None:
        logits = policy.model(input_ids=ids, use_cache=False).logits[:, -place.tokens - 1 : -1]
        logits.log_softmax(-1).gather(-1, rollouts.tokens[..., None]).sum().backward()
        policy.model.zero_grad(set_to_none=True)

    attached = backward.attach(policy.model, rollouts)
    predicted = probe.memory_needed(attached, rollouts) / 1e9
    weights = peak_now(place)
    checked = place.timed(lambda: probe.probe(policy.model, rollouts, recipes.GRPO))
    fast = place.timed(lambda: probe.probe(policy.model, rollouts, recipes.GRPO, check=False))
    figures = {**fast, "checked_seconds": checked["seconds"], "predicted_gb": predicted,
               "measured_gb": checked["peak_gb"] - weights, "self_check_error": attached.error}  # fmt: skip
    with suppress(torch.OutOfMemoryError):
        figures["pass_seconds"] = place.timed(plain)["seconds"]
    return figures


def peak_now(place: Place) -> float:
    """GB that are held now."""
    place.synchronize()
    reset_peak(place.device)
    return peak_memory(place.device)


def credit(policy: Policy, place: Place) -> Figures:
    """`grposcope credit` with two continuations from each boundary, once."""
    task = Hashed()
    budget = CreditBudget(3, 4, 4, 2, False, (2,))
    once = replace(place, rounds=1)
    tokens = min(place.tokens, 24)
    return once.timed(lambda: frontier.measure(policy, task, budget, Sampling(tokens), 0, None, True))


def offpolicy(policy: Policy, place: Place) -> Figures:
    """`grposcope offpolicy` on rollouts whose log-probabilities are off by 0.05 nats, as those of another sampler."""
    rollouts = drawn(policy, place)
    noise = 0.05 * torch.randn(rollouts.logp.shape, generator=torch.Generator().manual_seed(0))
    batch = replace(rollouts, logp=(rollouts.logp + noise.to(rollouts.logp)) * rollouts.mask)
    size = setup.micro_batch(policy, place.tokens)
    return replace(place, rounds=1).timed(lambda: from_model.measure(policy.model, [batch], size))


def trl(model: str, place: Place) -> Figures:
    """Whole steps of TRL and of the house in turn, at a learning rate of 0."""
    if find_spec("trl") is None or find_spec("datasets") is None:
        raise Absent("TRL is not installed")
    import step_vs_trl

    given = argparse.Namespace(
        model=model, task="arithmetic", prompts=place.prompts, group=place.group, max_tokens=place.tokens, live=[1.0],
        steps=place.rounds, device=place.device,
    )  # fmt: skip
    row = step_vs_trl.measure(given, "fixed", load=lambda name: policy_of(name, place))[0]
    return {"seconds": row["ours_median_s"], "trl_seconds": row["trl_median_s"], "trl_over_ours": row["ratio_median"],
            "trl_over_ours_least": row["ratio_min"], "trl_over_ours_most": row["ratio_max"],
            "peak_gb": peak_memory(place.device)}  # fmt: skip


SPEEDS: dict[str, Callable[[Policy, Place], Figures]] = {
    "sampling": sampling, "update": step, "probe": measured, "credit": credit, "offpolicy": offpolicy, "vllm": vllm,
}  # fmt: skip


def names(small: bool) -> list[str]:
    """The parts in their order: checks, then every model from small to large."""
    checks = [f"{name}: {dtype}" for name in CHECKS for dtype in ("float32", "bfloat16")]
    models = ("tiny", "small") if small else ("tiny", "smollm2", "0.5B", "1.5B", "3B", "7B")
    return checks + [f"{model}: {what}" for model in models for what in (*SPEEDS, "trl")]


def run(name: str, place: Place) -> Figures:
    """The figures of a part; Absent, Wrong, UserError or an error of PyTorch where there are none."""
    first, _, last = name.partition(": ")
    reset_peak(place.device)
    if first in CHECKS:
        return CHECKS[first](place, getattr(torch, last))
    if last == "trl":
        return trl(first, place)
    policy = policy_of(first, place)
    return {"parameters": policy.parameters, **SPEEDS[last](policy, place)}
