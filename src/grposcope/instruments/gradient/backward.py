"""Every rollout's score from one backward pass: each layer's inputs a and back-propagated gradients b.

Rollouts do not interact, so one backward of Σ_{i,t} m_{i,t} log π(y_{i,t}) gives, at a linear layer,

    S_i = Σ_t b_{i,t} a_{i,t}ᵀ    (the gradient of Σ_t m_{i,t} log π(y_{i,t}), one matrix per rollout)

With unit weights m these are the scores s_i = ∇ log π(y_i), and any gradient Σ_i u_i s_i is a weighted sum of
them. Weights that vary along a rollout need a backward pass of their own, since b carries the sum over later tokens.

`attach` finds the parameters that can be measured and checks their factors against autograd. `stream` runs the pass
and gives each parameter's `Score` to a visitor once its last use was seen, then releases it, so the factors of all
layers are never held at once. A weight shared by several layers (an embedding tied to the head) is given once, with
all its uses: the cross terms are exact. Linear layers, GPT-2's transposed ones and embeddings are measured through
their factors; biases and the vectors of norms by their per-rollout gradients. Adapters of low rank are linear layers;
a stack of `experts` is given one expert at a time.

Other trainable parameters (convolutions, what a state-space layer uses outside of its parts, weights that are used in
ways that no hook observes) are measured `without_hook`, exactly, by a backward pass of each rollout on its own: slower,
and dense. Only those whose gradients would take too much memory so are `left_out`, by name.

Blocks are recomputed in the backward pass (see `checkpointing`), unless the model checkpoints its activations
already, which works as well. In bfloat16 products are taken in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import checkpointing, experts, hooks, without_hook
from grposcope.instruments.gradient.checkpointing import replaced_forward
from grposcope.instruments.gradient.logits import TokenScores, weighted_logp, without_padding
from grposcope.instruments.gradient.score import Score
from grposcope.instruments.gradient.without_hook import spread
from grposcope.lab import cpu
from grposcope.lab.policies import recomputes_activations
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.workers import ALONE, Rows, Workers

T = TypeVar("T")

DIRECTIONS = 4
"""Random vectors by which the self-check multiplies a gradient: they show less than 1 % of a difference once in 10⁷."""


class Refusal(UserError):
    """Why a model is not measured, raised while no pass is under way: the model is as it was before."""


class _SeenTwice(Refusal):
    """The parameters `names` were used both in ways that are observed and in ways that are not."""

    def __init__(self, message: str, names: tuple[str, ...]):
        super().__init__(message)
        self.names = names


_KNOWN: WeakKeyDictionary[Any, tuple[frozenset[str], frozenset[str]]] = WeakKeyDictionary()
"""Model -> parameters that earlier passes found to be measured apart, and those that they found idle."""


@dataclass
class AttachedModel:
    """A model made ready by `attach` to be measured.

    measured: parameters whose scores `stream` gives, by name. left_out: the other trainable parameters.
    apart: those of `measured` that no hook covers: they take passes of their own, see `without_hook`.
    idle: those that the text does not use, as the self-check found, such as what a vision-language model sees with.
    energies: squared norms of the gradients of autograd in the self-check, by name.
    bytes_per_token: memory kept for the backward pass, without the logits, as observed in the last pass.
    block_bytes: the same of the largest block alone while it is recomputed, per token, as the self-check observed it;
    array_bytes: of the largest array among these, whose gradient the block's backward pass makes.
    error: relative error of the self-check, NaN where it was not made; worst: the parameter with the largest
    relative error, and that error. half: whether the last pass computed in 16 bits, whatever the weights are kept in.
    """

    model: Any
    temperature: float
    measured: dict[str, nn.Parameter]
    left_out: tuple[str, ...]
    bytes_per_token: float = math.nan
    block_bytes: float = 0.0
    array_bytes: float = 0.0
    error: float = math.nan
    worst: tuple[str, float] = ("", math.nan)
    half: bool = False
    apart: tuple[str, ...] = ()
    idle: frozenset[str] = frozenset()
    energies: dict[str, float] = field(default_factory=dict)
    _owners: hooks.Owners = field(default_factory=dict)
    _logits: int = 0

    @property
    def share_left_out(self) -> float:
        """Share of the trainable parameters that are not measured."""
        out = sum(dict(self.model.named_parameters())[name].numel() for name in self.left_out)
        return out / max(out + self.entries, 1)

    @property
    def share_apart(self) -> float:
        """Share of the measured parameters that take passes of their own."""
        return sum(self.measured[name].numel() for name in self.apart) / max(self.entries, 1)

    @property
    def energy_left_out(self) -> float:
        """Share of the gradient's squared norm, in the self-check, in parameters that are not measured; NaN without."""
        total = math.fsum(self.energies.values())
        return math.fsum(self.energies.get(name, 0.0) for name in self.left_out) / total if total else math.nan

    @property
    def entries(self) -> int:
        """Number of entries of the measured parameters."""
        return sum(p.numel() for p in self.measured.values())

    def shape(self, name: str) -> tuple[int, int]:
        """Outputs and inputs (R, C) of a parameter, the shape of its scores."""
        if name in self.apart:
            return 1, self.measured[name].numel()
        return hooks.oriented_shape(self._owners[name], self.measured[name])

    def weights(self, name: str) -> Tensor:
        """A parameter's weights; those that are spread over several processes (FSDP2) are gathered."""
        return without_hook.whole(self.measured[name].detach())

    def oriented(self, name: str, array: Tensor) -> Tensor:
        """A parameter's weights or gradient as outputs × inputs (R, C); GPT-2 keeps them the other way round."""
        return array.reshape(1, -1) if name in self.apart else hooks.oriented(self._owners[name], array)

    def stream(
        self,
        rollouts: RolloutBatch,
        visit: Callable[[Score], T],
        weights: Tensor | None = None,
        between: Callable[[Tensor, TokenScores], None] | None = None,
        keep: Callable[[T], None] | None = None,
        workers: Workers = ALONE,
    ) -> TokenScores:
        """One forward and one backward pass of Σ weights · log π; `visit` is called once for every parameter.

        weights: (B, T), by default 1 on every token. between: called after the forward pass with the tokens' scores
        e_y − π at the logits (B, K, V), those of the T tokens in the places [-T-1:-1], the other places
        meaningless, and with the tokens. keep: is given the results of `visit`, in order; `visit` may then be called
        in background threads. Parameters come in the order of the backward pass, last layer first, then the
        vectors. Scores may hold NaN: see `Score.check_finite`.

        workers: processes that share the rollouts, and call this together. Each then passes over its own rows, whose
        logits `between` is given, and visits the parameters that it measures, with the rows of all processes.
        """
        rows, mask = workers.rows(len(rollouts.mask)), rollouts.mask
        token_weights = mask.to(torch.float32) if weights is None else weights.where(mask, 0.0)
        mine = without_padding(rollouts).rows(rows.mine)
        whole_rows: list[TokenScores] = []
        self._logits = 0

        def after(scores: Tensor, tokens: TokenScores) -> None:
            self._logits = scores.untyped_storage().nbytes()
            whole_rows.append(TokenScores(rows.join(tokens.logp), rows.join(tokens.norms)))
            if between is not None:
                between(scores, *whole_rows)

        while True:
            try:
                with cpu.products(self.model):
                    self._pass(mine, token_weights[rows.mine], visit, after, keep, rows, workers)
            except hooks.Unmeasured as error:
                if whole_rows:  # the pass has begun to give scores
                    raise Refusal(str(error)) from None
                self._add_apart(error.names)
            else:
                return whole_rows[0]

    def _pass(
        self,
        mine: RolloutBatch,
        given: Tensor,
        visit: Callable[[Score], T],
        after: Callable[[Tensor, TokenScores], None],
        keep: Callable[[T], None] | None,
        rows: Rows,
        workers: Workers,
    ) -> None:
        """The passes of `stream` over this process's rollouts `mine`, with weights `given` (B, T)."""
        device = given.device
        blocks = checkpointing.blocks(self.model)
        inside = {module for block in blocks for module in block.modules()}
        hooked = {name: p for name, p in self.measured.items() if name not in self.apart and name not in self.idle}
        outside: dict[str, None] = {}  # parameters of which autograd found a gradient: some use was not observed
        gathered = any(without_hook.spread(p) for p in self.measured.values())
        measuring = cpu.in_background(visit, keep, device, _together) if keep else nullcontext(visit)
        with cpu.returning(device), measuring as measure, workers.assembling(measure, rows, self.entries) as take:
            with (
                _checkpointing(self.model),
                without_hook.without_gradients(self.model, self.apart),
                nullcontext()
                if gathered
                else without_hook.gradients_to(self.model, lambda name, _: outside.update({name: None})),
                hooks.collecting(self.model, hooked, self._owners, inside) as collector,
                _recomputed(blocks),
            ):
                with _saved_bytes() as saved:
                    _, total = weighted_logp(self.model, mine, given, self.temperature, after)
                self.half = collector.half or any(
                    p.is_floating_point() and p.itemsize == 2 for p in self.model.parameters()
                )
                self.bytes_per_token = (saved() - self._logits + collector.kept_bytes()) / _tokens(mine)
                collector.visit = take
                if total.requires_grad:
                    total.backward()
                collector.finish()
                seen = collector.given
            outside_names = sorted({name for each in workers.gathered(tuple(outside)) for name in each} - seen)
            self._add_apart([name for name in outside_names if name in self.measured])
            if self.apart:
                passes = self._passes(rows.total)
                with _checkpointing(self.model):
                    without_hook.scores(self.model, passes, mine, given, self.temperature, take)
        both = next((name for name in outside if name in seen), None)
        if both:
            module, _ = self._owners[both][0]
            raise _SeenTwice(
                f"{type(module).__name__} uses {both} in a way that cannot be measured; freeze that layer to "
                "measure the rest",
                tuple(name for name in outside if name in seen),
            )

    def _add_apart(self, names: Iterable[str]) -> None:
        """Measure these parameters apart, in this pass and in later ones of this model."""
        self.apart += tuple(name for name in names if name not in self.apart)
        _KNOWN[self.model] = (frozenset(self.apart), self.idle)

    def _passes(self, rollouts: int) -> list[list[str]]:
        """The parameters of each pass apart; leaves out those that are too large for so many rollouts."""
        passes, too_large = without_hook.groups({name: self.measured[name].numel() for name in self.apart}, rollouts)
        for name in too_large:
            del self.measured[name]
        self.left_out += tuple(too_large)
        self.apart = tuple(name for name in self.apart if name not in too_large)
        return passes


def _together(score: Score) -> bool:
    """Whether all threads work on this parameter together: a large one, and rows of one that processes share."""
    return score.large or score.part is not None


def _tokens(rollouts: RolloutBatch) -> int:
    """Number of token positions of a batch, padding included."""
    return rollouts.prompt_ids.numel() + rollouts.tokens.numel()


def attach(model: Any, rollouts: RolloutBatch | None = None, temperature: float = 1.0) -> AttachedModel:
    """Find what can be measured, and check the factors against autograd on a few tokens of `rollouts`.

    UserError where the model has no layer of a known kind, or where the two gradients disagree.
    """
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None and parameter.requires_grad:
                owners.setdefault(id(parameter), []).append((module, key))
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not trained:
        raise UserError("the model has no trainable parameter to measure; unfreeze some weights")
    hooked = {name for name, p in trained.items() if all(hooks.known(*owner) for owner in owners[id(p)])}
    spreads = any(without_hook.spread(p) for p in trained.values())
    if spreads:  # passes of single rollouts would not keep step
        hooked = {
            name for name in hooked if not any(experts.is_stack(module) for module, _ in owners[id(trained[name])])
        }
    measured = {name: p for name, p in trained.items() if name in hooked or not spreads}
    names, idle = _KNOWN.get(model, (frozenset(), frozenset()))
    attached = AttachedModel(
        model,
        temperature,
        measured,
        left_out=tuple(name for name in trained if name not in measured),
        apart=tuple(name for name in measured if (name not in hooked or name in names) and name not in idle),
        idle=idle,
        _owners={name: owners[id(p)] for name, p in measured.items()},
    )
    if rollouts is None:
        return attached
    while True:
        try:
            _self_check(attached, rollouts)
        except _SeenTwice as error:
            attached._add_apart(error.names)
        else:
            attached.idle = frozenset(name for name in attached.measured if name not in attached.energies)
            attached.apart = tuple(name for name in attached.apart if name not in attached.idle)
            attached._add_apart(())
            return attached


def _self_check(attached: AttachedModel, rollouts: RolloutBatch, most: int = 2) -> None:
    """Compare Σ w ∇log π from the factors with autograd's, on two rollouts of a few tokens with random weights.

    The factors of so few tokens are small and all kept; autograd's gradients are as large as the model, so each is
    released as soon as it was compared, and read once: both are multiplied by DIRECTIONS random vectors x, for which
    E‖G x‖² = ‖G‖². Rollouts count differently in the two: 1 and −2 times in what autograd is asked for, and so in the
    sum of their scores; a token that was given to the wrong rollout is noticed. UserError where the two disagree.
    """
    few = _excerpt(rollouts, most)
    _check_input(attached.model, rollouts)
    _check_causal(attached, rollouts)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(few.mask.shape, generator=generator).to(few.mask.device).where(few.mask, 0.0)
    coefficients = torch.tensor([1.0, -2.0], dtype=weights.dtype, device=weights.device)
    waiting: dict[str, list[Score]] = {}

    def wait(score: Score) -> None:
        score.check_finite()
        waiting.setdefault(score.name, []).append(score)

    with _said_in_one_line():
        attached.stream(few, wait, weights)
    off: dict[str, float] = {}
    size: dict[str, float] = {}
    missing: list[str] = []

    def compare(name: str, gradient: Tensor) -> None:
        """Note the squared norms of a gradient of autograd and of its difference from the factors."""
        use = waiting.pop(name, None)
        attached.energies[name] = _square(gradient)
        if use is not None:
            normal = torch.randn(use[0].shape[1], DIRECTIONS, generator=generator) / DIRECTIONS**0.5
            directions = normal.to(gradient.device, use[0].dtype)
            theirs = attached.oriented(name, gradient).to(directions.dtype) @ directions
            size[name] = _square(theirs)
            ours = torch.cat([score.times(directions, coefficients.to(directions)) for score in use])
            off[name] = _square(theirs - ours)
        elif name in attached.measured and bool(gradient.any()):
            missing.append(name)

    here = attached.model
    with cpu.products(here), _checkpointing(here), without_hook.gradients_to(here, compare):
        _, total = weighted_logp(here, few, weights * coefficients[:, None], attached.temperature)
        if total.requires_grad:
            total.backward()
        del total
    sized = _excerpt(rollouts, max(most, _chunk(attached.model) // 2))
    block = _saved_in_a_block(attached, sized)
    attached.block_bytes, attached.array_bytes = (count / _tokens(sized) for count in block)
    for name, use in waiting.items():  # autograd has no gradient of these
        off[name], size[name] = math.fsum(_square(score.dense()) for score in use), 0.0
    for name in missing:  # spread over processes, and used outside of its layer: left out, by name
        del attached.measured[name], attached._owners[name]
    attached.left_out += tuple(missing)
    total_size = math.fsum(size.values())
    attached.error = math.sqrt(math.fsum(off.values()) / total_size) if total_size else math.nan
    relative = {name: math.sqrt(off[name] / size[name]) for name in off if size[name] > 1e-12 * total_size}
    attached.worst = max(relative.items(), key=lambda error: error[1], default=("", math.nan))
    allowed = 0.1 if attached.half else 1e-3
    if not attached.error <= allowed:  # NaN too
        raise Refusal(
            f"the gradient assembled from the layers differs from autograd's by {attached.error:.1e} "
            f"(relative), most at {attached.worst[0]}: this model uses its weights in a way that cannot be "
            "measured; freeze that layer"
        )
    _check_padding(attached, rollouts)


def _check_input(model: Any, rollouts: RolloutBatch) -> None:
    """Refusal where the kind of model, weights or token ids cannot give a gradient, before anything is computed."""
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        raise Refusal(
            f"{getattr(config, 'model_type', 'this model')} is an encoder-decoder model, whose completions do not "
            "continue their prompts; probe a causal language model"
        )
    adapters = getattr(model, "peft_config", {})
    if any(getattr(adapter, "is_prompt_learning", False) for adapter in getattr(adapters, "values", tuple)()):
        raise Refusal(
            "the adapters are virtual tokens (prefix, prompt or P-tuning), which no layer holds; probe LoRA adapters "
            "or the whole model"
        )
    for name, parameter in model.named_parameters():
        if parameter.device.type == "meta":
            raise Refusal(f"{name} has no values (a meta tensor); load the model's weights before the probe")
        if parameter.is_floating_point() and not bool(torch.isfinite(_local(parameter).sum(dtype=torch.float32))):
            raise Refusal(f"{name} has weights that are NaN or infinite; load another checkpoint")
    largest = max(int(ids.max()) if ids.numel() else 0 for ids in (rollouts.prompt_ids, rollouts.tokens))
    embedding = getattr(model, "get_input_embeddings", lambda: None)()
    rows = len(embedding.weight) if isinstance(embedding, nn.Embedding) else largest + 1
    if largest >= rows:
        raise Refusal(
            f"the rollouts hold token {largest}, but the model's embedding has {rows} rows; use the tokenizer that "
            "belongs to this model, or resize the embedding"
        )


def _local(array: Any) -> Tensor:
    """The array itself, or this process's part of one that is spread over several."""
    own: Tensor = array.to_local() if spread(array) else array
    return own


@contextmanager
def _said_in_one_line() -> Iterator[None]:
    """Inside, an error of the model's own forward pass becomes a Refusal; want of memory and interruptions do not."""
    try:
        yield
    except (UserError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise Refusal(
            f"the forward pass of this model fails as a probe makes it, on token ids with a mask and positions "
            f"({said[:200]}); probe a causal language model of transformers"
        ) from error


def _check_causal(attached: AttachedModel, rollouts: RolloutBatch, most: int = 6) -> None:
    """Refusal where the model cannot read token ids with a mask and positions, or where a later token changes log π of
    an earlier one, as in a model with attention in both directions: its scores are no gradients of a policy."""
    row = int(rollouts.lengths.argmax())
    twice = without_padding(rollouts.rows(torch.tensor([row, row])))
    tokens = twice.tokens[:, :most][:, : max(int(twice.mask[0, :most].sum()), 1)]
    tokens = torch.cat((tokens, tokens[:, :1]), 1)  # a completion of one token has no later one
    ids = torch.cat((twice.prompt_ids[0], tokens[0]))
    others = ids[ids != tokens[1, -1]]
    tokens[1, -1] = others[0] if len(others) else max(int(tokens[1, -1]) - 1, 0)
    two = replace(twice, tokens=tokens, mask=torch.ones_like(tokens, dtype=torch.bool), token_annotations={})
    with torch.no_grad(), _said_in_one_line():
        logp = weighted_logp(attached.model, two, two.mask.float(), attached.temperature)[0].logp
    off = float((logp[0, :-1] - logp[1, :-1]).abs().max())
    if off > (0.3 if attached.half else 1e-4):
        raise Refusal(
            f"a later token changes log π of earlier ones by {off:.1e}, so this model is not causal; load it as a "
            "decoder (is_decoder=True), or probe a causal language model"
        )


def _check_padding(attached: AttachedModel, rollouts: RolloutBatch) -> None:
    """Refusal where padding changes what the model says of a prompt, so that a batch is not its rollouts one by one."""
    padded = without_padding(rollouts)
    lengths = padded.prompt_mask.sum(-1)
    if bool(padded.prompt_mask.all()):
        return
    which = torch.stack((lengths.argmin(), lengths.argmax()))
    two = padded.rows(which)
    width = max(1, min(4, int(two.lengths[0])))
    two = replace(two, tokens=two.tokens[:, :width], mask=two.mask[:, :width], token_annotations={})
    with torch.no_grad():
        together, alone = (
            weighted_logp(attached.model, given, given.mask.float(), attached.temperature)[0].logp[0]
            for given in (two, without_padding(two.rows(slice(0, 1))))
        )
    off = float((together - alone).abs().max())
    if not off <= (1.0 if attached.half else 1e-3):
        raise Refusal(
            f"padding changes the log-probabilities of this model by {off:.1e}; use prompts of one length, such as a "
            "single prompt"
        )


def _chunk(model: Any) -> int:
    """Tokens of a chunk, to which a state-space model pads what it is given; 0 for other models."""
    config = getattr(model, "config", None)
    sizes = (getattr(config, name, None) for name in ("chunk_size", "mamba_chunk_size"))
    return next((size for size in sizes if isinstance(size, int)), 0)


def _square(array: Tensor) -> float:
    """Squared Frobenius norm, taken by rows so that several threads work on it."""
    array = array if array.itemsize > 2 else array.float()
    return float(torch.linalg.vector_norm(array, dim=-1).double().square().sum())


def _excerpt(rollouts: RolloutBatch, most: int) -> RolloutBatch:
    """The first rollout and the shortest, cut to the last and first `most` tokens of prompt and completion."""
    lengths = rollouts.lengths
    rows = torch.stack((lengths.new_tensor(0), lengths.clamp(min=1).argmin()))
    mask = rollouts.mask[rows, :most]
    if not bool(mask.any()):
        rows = torch.stack((lengths.argmax(), lengths.argmax()))
        mask = rollouts.mask[rows, :most]
    cut = RolloutBatch(
        prompt_ids=rollouts.prompt_ids[rows][:, -most:],
        prompt_mask=rollouts.prompt_mask[rows][:, -most:],
        tokens=rollouts.tokens[rows, :most],
        mask=mask,
        logp=rollouts.logp[rows, :most],
        entropy=rollouts.entropy[rows, :most],
        truncated=rollouts.truncated[rows],
        rewards=rollouts.rewards.new_zeros(1, 2),
    )
    return without_padding(cut)


@contextmanager
def _checkpointing(model: Any) -> Iterator[None]:
    """Training mode if the model checkpoints its activations, which it does in that mode only; dropout is off."""
    was, wanted = model.training, recomputes_activations(model)
    if was == wanted:
        yield
        return
    model.train(wanted)
    try:
        yield
    finally:
        model.train(was)


# Memory


def _saved_in_a_block(attached: AttachedModel, few: RolloutBatch) -> tuple[int, int]:
    """Bytes that the block which keeps most keeps for its backward pass, and of the largest array that any keeps.

    Nothing is recomputed.
    """
    model, most, largest = attached.model, 0, 0
    with ExitStack() as stack:
        stack.callback(model.train, model.training)
        model.eval()  # models that checkpoint do so in training mode only
        saved = stack.enter_context(_saved_arrays())
        before: list[set[int]] = []

        def end(*_: Any) -> None:
            nonlocal most, largest
            sizes = before.pop()
            own = [size for name, size in saved.items() if name not in sizes]
            most, largest = max(most, sum(own)), max(largest, *own, 0)

        for block in checkpointing.every_block(model):
            stack.callback(block.register_forward_pre_hook(lambda *_: before.append(set(saved))).remove)
            stack.callback(block.register_forward_hook(end).remove)
        weighted_logp(model, few, few.mask.float(), attached.temperature)
    return most, largest


@contextmanager
def _recomputed(blocks: list[nn.Module]) -> Iterator[None]:
    """Checkpoint these blocks inside the `with` block."""
    with ExitStack() as stack:
        for block in blocks:
            stack.enter_context(replaced_forward(block, _checkpointed(block.forward)))
        yield


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The forward with checkpointing: reentrant where gradients come in through positional arguments alone.

    Reentrant checkpointing builds no graph the first time. A graph is thousands of small objects between large
    arrays, whose memory could then not be reused.
    """

    def run(*arguments: Any, **keywords: Any) -> Any:
        named = any(isinstance(x, Tensor) and x.requires_grad for x in tree_leaves(keywords))
        floating = [isinstance(x, Tensor) and x.is_floating_point() for x in arguments]
        if named or not any(floating):
            return checkpoint(forward, *arguments, use_reentrant=False, preserve_rng_state=False, **keywords)
        if not any(x.requires_grad for x, yes in zip(arguments, floating, strict=True) if yes):
            arguments = tuple(
                x.detach().requires_grad_() if yes else x for x, yes in zip(arguments, floating, strict=True)
            )
        return checkpoint(partial(forward, **keywords), *arguments, use_reentrant=True, preserve_rng_state=False)

    return run


@contextmanager
def _saved_bytes() -> Iterator[Callable[[], int]]:
    """Count the bytes autograd keeps for the backward pass, without the weights."""
    with _saved_arrays() as saved:
        yield lambda: sum(saved.values())


@contextmanager
def _saved_arrays() -> Iterator[dict[int, int]]:
    """The arrays that autograd keeps for the backward pass, without the weights: their places, and their bytes."""
    seen: dict[int, int] = {}

    def pack(array: Tensor) -> Tensor:
        if not isinstance(array if array._base is None else array._base, nn.Parameter):
            storage = array.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
        return array

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda array: array):
        yield seen
