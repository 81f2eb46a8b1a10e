"""Which models a probe measures exactly: every family against a backward pass per rollout; writes families.md here.

    python benchmarks/families.py            # all families, about a minute; rewrites the table
    python benchmarks/families.py llama lora # some, printed only

Every model is tiny and random (two layers or a few, width 16, weights with noise of 0.3, so that no distribution is
flat) and of the configuration that `FAMILIES` gives. For each, in float32:

* `gram`: the largest difference between the Gram matrix of the scores and that of gradients by autograd, one rollout
  at a time without padding, relative to the largest entry; of the sum over parameters, and the worst parameter alone.
* `apart`: the share of the trainable parameters that no hook covers, and of the gradient's energy Σ‖S_i‖² in them.
* `left out`: the same of what is not measured at all.
* `bfloat16`: the Frobenius norm of the difference between the Gram matrix of the model in bfloat16 and that of its
  float32 twin with the same (rounded) weights, relative to the latter. Rounding can send a token to another expert.

A family that is refused has the line of the refusal. Limits: `EXACT` and `HALF`, held by tests; `HALF` was set
after these figures were seen.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import backward, gram
from grposcope.instruments.gradient.score import Score
from grposcope.lab.rollout_batch import RolloutBatch

PAGE = Path(__file__).with_suffix(".md")
EXACT = 1e-5
"""Largest relative difference of a Gram matrix in float32 that counts as exact."""
HALF = 0.2
"""Largest relative difference of the Gram matrix in bfloat16 from its float32 twin; 0.5 for hybrids with experts."""

VOCABULARY, PAD, WIDTH = 37, 2, 16

IDS = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 0}
PLAIN = {**IDS, "hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 64}  # fmt: skip
GROUPED = {**PLAIN, "num_key_value_heads": 2}
HEADS = {**GROUPED, "head_dim": 8}
UNTIED, TIED = {"tie_word_embeddings": False}, {"tie_word_embeddings": True}
SOFT = {**HEADS, "query_pre_attn_scalar": 8, "sliding_window": 4}
EXPERTS = {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
LATENT = {**PLAIN, "num_key_value_heads": 4, "moe_intermediate_size": 8, "n_routed_experts": 4,
        "num_experts_per_tok": 2,
          "n_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 4,
          "qk_rope_head_dim": 4, "v_head_dim": 4, "n_group": 1, "topk_group": 1,
          "routed_scaling_factor": 1.0}  # fmt: skip
SSM = {"mamba_d_state": 4, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": 4, "mamba_d_head": 8,
        "mamba_n_groups": 1,
       "mamba_chunk_size": 8}  # fmt: skip
GPT2 = {**IDS, "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 64}
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
VISION = {"depth": 1, "hidden_size": WIDTH, "num_heads": 2, "intermediate_size": 16, "patch_size": 4}


@dataclass(frozen=True)
class Family:
    """A kind of model: its type in transformers, settings, what it tries, and a change made to the model."""

    kind: str
    settings: dict[str, Any]
    tries: str
    change: Callable[[Any], Any] = lambda model: model
    needs: str = ""
    routed: bool = False
    padded: bool = True
    loader: Any = AutoModelForCausalLM


def adapters(**settings: Any) -> Callable[[Any], Any]:
    """A change to adapters of low rank, random and far from zero."""

    def change(model: Any) -> Any:
        import peft

        given = {"r": 2, "target_modules": ["q_proj", "v_proj", "down_proj"], "init_lora_weights": False, **settings}
        return peft.get_peft_model(model, peft.LoraConfig(**given))

    return change


def scaled(model: Any) -> Any:
    """A change to learned scales (IA3)."""
    import peft

    given = peft.IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"])
    return peft.get_peft_model(model, given)


def biases_only(model: Any) -> Any:
    """A change to training biases alone."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return model


def four_bits(model: Any) -> Any:
    """A change to a base in 4 bits (bitsandbytes) with adapters."""
    import bitsandbytes

    for block in model.model.layers:
        for parent, name in ((block.self_attn, "q_proj"), (block.self_attn, "v_proj"), (block.mlp, "down_proj")):
            old = getattr(parent, name)
            new = bitsandbytes.nn.Linear4bit(old.in_features, old.out_features, bias=False, quant_type="nf4")
            new.weight = bitsandbytes.nn.Params4bit(old.weight.data.clone(), requires_grad=False, quant_type="nf4")
            setattr(parent, name, new.to("cpu"))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return adapters()(model)


def with_checkpointing(model: Any) -> Any:
    """A change to a model that recomputes its activations itself."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


FAMILIES: dict[str, Family] = {
    "gpt2": Family("gpt2", GPT2, "transposed weights, learned positions, tied head"),
    "llama": Family("llama", {**GROUPED, **TIED}, "tied head"),
    "llama, untied": Family("llama", {**GROUPED, **UNTIED, "attention_bias": True, "mlp_bias": True}, "biases"),
    "llama, checkpointing": Family("llama", GROUPED, "recomputes its activations itself", with_checkpointing),
    "mistral": Family("mistral", {**GROUPED, "sliding_window": 4}, "sliding window"),
    "qwen2": Family("qwen2", {**GROUPED, **UNTIED}, "biases of projections"),
    "qwen3": Family("qwen3", {**HEADS, **UNTIED}, "norms of heads"),
    "qwen3_moe": Family("qwen3_moe", {**EXPERTS, "head_dim": 8}, "experts, router", routed=True),
    "qwen2_moe": Family("qwen2_moe", {**EXPERTS, "shared_expert_intermediate_size": 8}, "a shared expert", routed=True),
    "mixtral": Family("mixtral", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}, "experts", routed=True),
    "mixtral, one by one": Family("mixtral", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2,
        "experts_implementation": "eager"}, "experts in a loop", routed=True),
    "mixtral, batched": Family("mixtral", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2,
        "experts_implementation": "batched_mm"}, "experts as a batch", routed=True),
    "olmoe": Family("olmoe", {**EXPERTS}, "experts, norms of heads", routed=True),
    "gpt_oss": Family("gpt_oss", {**HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4},
        "experts with biases, transposed; sinks", routed=True),
    "llama4": Family("llama4_text", {**HEADS, "intermediate_size_mlp": 24, "num_local_experts": 2,
        "interleave_moe_layer_step": 1, "attention_chunk_size": 32, "num_experts_per_tok": 1},
        "every token through every expert", routed=True),
    "granitemoe": Family("granitemoe", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}, "experts, scales",
        routed=True),
    "deepseek_v2": Family("deepseek_v2", LATENT, "latent attention, experts", routed=True),
    "deepseek_v3": Family("deepseek_v3", LATENT, "sigmoid router", routed=True),
    "hy_v4": Family("hy_v4", {**{k: v for k, v in LATENT.items() if k != "first_k_dense_replace"}, "head_dim": 8,
        "index_head_dim": 4, "index_n_heads": 2, "index_topk": 64, "hc_mult": 4,
        "mlp_layer_types": ["dense", "sparse"]}, "hyper-connections, an indexer that keeps every token", routed=True),
    "glm4_moe": Family("glm4_moe", {**EXPERTS, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1, "head_dim": 8}, "sigmoid router", routed=True),
    "phimoe": Family("phimoe", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}, "sparse mixer",
        routed=True),
    "gemma": Family("gemma", HEADS, "scaled embedding, norms by 1 + weight"),
    "gemma2": Family("gemma2", SOFT, "soft caps, sliding window"),
    "gemma3": Family("gemma3_text", SOFT, "norms of heads, sliding window"),
    "phi": Family("phi", {**PLAIN, "partial_rotary_factor": 0.5}, "biases, parallel blocks"),
    "phi3": Family("phi3", GROUPED, "fused projections"),
    "gpt_neox": Family("gpt_neox", PLAIN, "fused projections, biases"),
    "gptj": Family("gptj", {**GPT2, "rotary_dim": 4}, "parallel blocks"),
    "gpt_bigcode": Family("gpt_bigcode", GPT2, "one key for all heads"),
    "gpt_neo": Family("gpt_neo", {**IDS, "hidden_size": WIDTH, "num_layers": 2, "num_heads": 4,
        "attention_types": [[["global", "local"], 1]], "window_size": 4, "max_position_embeddings": 64},
        "local attention"),
    "opt": Family("opt", {**PLAIN, "ffn_dim": 24, "word_embed_proj_dim": 8},
        "projected embedding, positions from a mask"),
    "olmo": Family("olmo", GROUPED, "norms without weights"),
    "olmo2": Family("olmo2", GROUPED, "norms after the blocks"),
    "falcon": Family("falcon", {**PLAIN, "alibi": False}, "fused projections, x @ weight.T"),
    "stablelm": Family("stablelm", GROUPED, "partial rotation"),
    "cohere": Family("cohere", {**GROUPED, "logit_scale": 0.5}, "scaled logits, parallel blocks"),
    "cohere2": Family("cohere2", {**GROUPED, "sliding_window": 4}, "layers without positions"),
    "granite": Family("granite", {**GROUPED, "embedding_multiplier": 2.0, "logits_scaling": 3.0},
        "scaled embedding and logits"),
    "glm4": Family("glm4", {**HEADS}, "fused gate, four norms"),
    "smollm3": Family("smollm3", GROUPED, "layers without positions"),
    "starcoder2": Family("starcoder2", GROUPED, "biases"),
    "nemotron": Family("nemotron", GROUPED, "norms by 1 + weight with biases"),
    "ernie4_5": Family("ernie4_5", {**GROUPED, "head_dim": 8}, "tied head"),
    "exaone4": Family("exaone4", {**GROUPED, "sliding_window": 4}, "norms after the blocks"),
    "bloom": Family("bloom", {**IDS, "hidden_size": WIDTH, "n_layer": 2, "n_head": 4}, "ALiBi, norm of the embedding"),
    "mpt": Family("mpt", {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
        "ALiBi, fused projections"),
    "biogpt": Family("biogpt", PLAIN, "scaled embedding"),
    "xglm": Family("xglm", {**IDS, "d_model": WIDTH, "num_layers": 2, "attention_heads": 4, "ffn_dim": 24,
        "max_position_embeddings": 64}, "scaled embedding, fixed positions"),
    "mamba": Family("mamba", {**IDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 4}, "state space"),
    "mamba2": Family("mamba2", {**IDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 4, "num_heads": 4,
        "head_dim": 8, "n_groups": 1, "chunk_size": 8}, "state space"),
    "falcon_mamba": Family("falcon_mamba", {**IDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 4},
        "state space, norms without weights"),
    "jamba": Family("jamba", {**EXPERTS, "mamba_d_state": 4, "mamba_d_conv": 4, "mamba_dt_rank": 4,
        "num_hidden_layers": 4,
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "use_mamba_kernels": False}, "state space, attention and experts", routed=True),
    "bamba": Family("bamba", {**GROUPED, **SSM, "attn_layer_indices": [1]}, "state space and attention"),
    "zamba2": Family("zamba2", {**GROUPED, "num_hidden_layers": 3, "mamba_d_state": 4, "n_mamba_heads": 4,
        "mamba_headdim": 8,
        "mamba_ngroups": 1, "chunk_size": 8, "layers_block_type": ["mamba", "mamba", "hybrid"], "num_mem_blocks": 1,
        "adapter_rank": 4, "attention_head_dim": 8}, "blocks shared by layers"),
    "falcon_h1": Family("falcon_h1", {**GROUPED, **SSM, "mamba_d_ssm": 32}, "both in one block, scaled"),
    "granitemoehybrid": Family("granitemoehybrid", {**GROUPED, **SSM, "num_local_experts": 4, "num_experts_per_tok": 2,
        "shared_intermediate_size": 8, "layer_types": ["mamba", "attention"]}, "state space, attention, experts",
        routed=True),
    "qwen3_next": Family("qwen3_next", {**EXPERTS, "head_dim": 8, "shared_expert_intermediate_size": 8,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"]}, "linear attention, experts", routed=True),
    "lfm2": Family("lfm2", {**GROUPED, "layer_types": ["conv", "full_attention"], "block_ff_dim": 24}, "convolutions"),
    "recurrent_gemma, one length": Family("recurrent_gemma", {**HEADS, "lru_width": WIDTH, "attention_window_size": 8,
        "num_hidden_layers": 3, "block_types": ["recurrent", "recurrent", "attention"]}, "prompts of one length",
        padded=False),
    "recurrent_gemma": Family("recurrent_gemma", {**HEADS, "lru_width": WIDTH, "attention_window_size": 8,
        "num_hidden_layers": 3, "block_types": ["recurrent", "recurrent", "attention"]}, "recurrence and attention"),
    "rwkv, one length": Family("rwkv", {**IDS, "hidden_size": WIDTH, "num_hidden_layers": 2,
        "attention_hidden_size": WIDTH,
        "intermediate_size": 24, "context_length": 64}, "prompts of one length", padded=False),
    "rwkv": Family("rwkv", {**IDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "attention_hidden_size": WIDTH,
        "intermediate_size": 24, "context_length": 64}, "recurrence; blind to padding masks"),
    "qwen2_vl": Family("qwen2_vl", {"text_config": {**GROUPED, "num_attention_heads": 2, "rope_parameters": ROPE,
        "model_type": "qwen2_vl_text"},
        "vision_config": {**VISION, "embed_dim": WIDTH, "model_type": "qwen2_vl"}, **IDS},
        "text of a vision-language model",
        loader=AutoModelForImageTextToText),
    "gemma3, multimodal": Family("gemma3", {"text_config": {**SOFT, "model_type": "gemma3_text"}, "vision_config": {
        "hidden_size": WIDTH, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 4, "model_type": "siglip_vision_model"}, "mm_tokens_per_image": 4},
        "text of a vision-language model",
        loader=AutoModelForImageTextToText),
    "llama, LoRA": Family("llama", {**GROUPED, **UNTIED}, "adapters of low rank", adapters(), "peft"),
    "llama, DoRA": Family("llama", {**GROUPED, **UNTIED}, "adapters with magnitudes", adapters(use_dora=True), "peft"),
    "llama, LoRA, embedding": Family("llama", {**GROUPED, **UNTIED}, "adapters of an embedding, head trained",
        adapters(target_modules=["q_proj", "embed_tokens"], modules_to_save=["lm_head"]), "peft"),
    "llama, IA3": Family("llama", {**GROUPED, **UNTIED}, "learned scales", scaled, "peft"),
    "qwen2, biases only": Family("qwen2", {**GROUPED, **UNTIED}, "all else frozen", biases_only),
    "llama, 4 bits": Family("llama", {**GROUPED, **UNTIED, "hidden_size": 64, "intermediate_size": 64},
        "base of bitsandbytes in nf4, adapters", four_bits, "bitsandbytes"),
}  # fmt: skip


def build(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A random model of the family whose distributions are far from flat, with weights that bfloat16 holds."""
    family = FAMILIES[name]
    settings = dict(family.settings)
    implementation = settings.pop("experts_implementation", None)
    torch.manual_seed(0)
    model = family.loader.from_config(AutoConfig.for_model(family.kind, **settings))
    if implementation:
        model.config._experts_implementation = implementation
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
            parameter.copy_(parameter.to(torch.bfloat16))
    return family.change(model).to(dtype).eval()


def batch(prompts: int = 2, group: int = 3, seed: int = 0, padded: bool = True) -> RolloutBatch:
    """Rollouts of uneven length; prompts of uneven length, padded on the left, or of one length."""
    random = torch.Generator().manual_seed(seed)
    count, before, after = prompts * group, 4, 5
    prompt = torch.randint(3, VOCABULARY, (prompts, before), generator=random)
    prompt_mask = torch.ones(prompts, before, dtype=torch.bool)
    prompt_mask[1:, 0] = not padded
    tokens = torch.randint(3, VOCABULARY, (count, after), generator=random)
    lengths = torch.randint(1, after + 1, (count, 1), generator=random)
    lengths[0] = after
    mask = torch.arange(after) < lengths
    return RolloutBatch(
        prompt_ids=prompt.masked_fill(~prompt_mask, PAD).repeat_interleave(group, 0),
        prompt_mask=prompt_mask.repeat_interleave(group, 0),
        tokens=tokens.masked_fill(~mask, PAD),
        mask=mask,
        logp=torch.zeros(count, after),
        entropy=torch.zeros(count, after),
        truncated=torch.zeros(count, dtype=torch.bool),
        rewards=torch.arange(count).reshape(prompts, group).double(),
    )


def by_autograd(model: Any, rollouts: RolloutBatch) -> dict[str, Tensor]:
    """The gradient of each rollout's Σ_t log π (B, D) by parameter: a pass of its own, without padding or masks."""
    rows: list[dict[str, Tensor]] = []
    for row in range(len(rollouts.mask)):
        prompt = rollouts.prompt_ids[row][rollouts.prompt_mask[row]]
        tokens = rollouts.tokens[row][rollouts.mask[row]]
        logits = model(input_ids=torch.cat((prompt, tokens))[None], use_cache=False).logits[0, len(prompt) - 1 : -1]
        logp = logits.float().log_softmax(-1)[torch.arange(len(tokens)), tokens]
        model.zero_grad()
        logp.sum().backward()
        rows.append({n: p.grad.double().flatten() for n, p in model.named_parameters() if p.grad is not None})
    model.zero_grad()
    names = {name: rows_with[name] for rows_with in rows for name in rows_with}
    return {n: torch.stack([g.get(n, torch.zeros_like(like)) for g in rows]) for n, like in names.items()}


def grams(model: Any, rollouts: RolloutBatch) -> tuple[dict[str, NDArray[np.float64]], backward.AttachedModel]:
    """The Gram matrix of every measured parameter, and how the model was attached; the self-check is on."""
    attached = backward.attach(model, rollouts)
    found: dict[str, NDArray[np.float64]] = {}

    def add(score: Score) -> None:
        score.check_finite()
        found[score.name] = found.get(score.name, 0.0) + gram.gram(score).cpu().numpy()

    attached.stream(rollouts, add)
    return found, attached


@dataclass(frozen=True)
class Row:
    """What came out for a family; NaN where it was refused. Shares are of 1."""

    name: str
    tries: str
    parameters: int = 0
    error: float = np.nan
    worst: float = np.nan
    norms: float = np.nan
    apart: tuple[float, float] = (np.nan, np.nan)
    left_out: tuple[float, float] = (np.nan, np.nan)
    untouched: float = np.nan
    half: float = np.nan
    refused: str = ""

    @property
    def exact(self) -> bool:
        """Whether all that the text touches is measured, and exactly."""
        return not self.refused and max(self.error, self.worst, self.norms) < EXACT and self.left_out[1] == 0

    def cells(self) -> list[str]:
        """The cells of the page's table."""
        if self.refused:
            return [self.name, self.tries, f"refused: {self.refused}", "", "", "", ""]
        out = "nothing" if not self.left_out[1] else _shares(self.left_out)
        covered = "all" if not self.untouched else f"{_percent(1 - self.untouched)}, the rest is not used by text"
        return [self.name, self.tries, "exact" if self.exact else f"{self.error:.0e}", covered,
                "nothing" if not self.apart[0] else _shares(self.apart), out, f"{self.half:.1g}"]  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _shares(shares: tuple[float, float]) -> str:
    return f"{_percent(shares[0])} ({_percent(shares[1])})"


def measure(name: str, half: bool = True) -> Row:
    """The row of a family; half: also against its twin in bfloat16."""
    family = FAMILIES[name]
    rollouts = batch(padded=family.padded)
    model = build(name)
    row = Row(name, family.tries, sum(p.numel() for p in model.parameters() if p.requires_grad))
    try:
        found, attached = grams(model, rollouts)
    except UserError as error:
        return replace(row, refused=str(error))
    wanted = by_autograd(model, rollouts)
    products = {n: (g @ g.mT).cpu().numpy() for n, g in wanted.items()}
    energy = {n: float(np.trace(products[n])) if n in products else 0.0 for n, _ in model.named_parameters()}
    nothing = np.zeros((len(rollouts.mask),) * 2)
    total = sum((products[n] for n in products if n in attached.measured), nothing)
    ours = sum(found.values(), nothing)
    top = float(np.abs(total).max())
    off = [np.abs(found.get(n, nothing) - products.get(n, nothing)).max() / top for n in attached.measured]
    sizes, trained = np.sqrt(np.diag(total)), {n: p for n, p in model.named_parameters() if p.requires_grad}
    every = sum(p.numel() for p in trained.values())

    def shares(names: Sequence[str]) -> tuple[float, float]:
        of_all = sum(trained[n].numel() for n in names) / every
        return of_all, sum(energy[n] for n in names) / sum(energy.values())

    touched = [n for n in attached.apart if n in products]
    row = replace(
        row,
        error=float(np.abs(ours - total).max()) / top,
        worst=float(max(off)),
        norms=float((np.abs(np.sqrt(np.diag(ours)) - sizes) / sizes).max()),
        apart=shares(touched),
        left_out=shares(attached.left_out),
        untouched=shares([n for n in trained if n not in products])[0],
    )
    if half:
        try:
            rough, _ = grams(build(name, torch.bfloat16), rollouts)
            row = replace(row, half=float(np.linalg.norm(sum(rough.values(), nothing) - total) / np.linalg.norm(total)))
        except (UserError, RuntimeError):
            pass
    return row


HEADER = f"""# Which models a probe measures

Generated by `python benchmarks/families.py`; a test holds it. Every family that it lists is a tiny random model, and
its Gram matrix, with those of all its parameters, is compared with gradients by autograd, one rollout at a time:
**exact** means to {EXACT:g} of the largest entry in float32. Nothing is approximated.

- **by hooks**: linear layers, transposed or fused ones, embeddings, tied and scaled ones, norms, biases, adapters,
  routers, and stacks of experts (grouped products, or one expert after the other) are measured within one backward
  pass over the batch.
- **apart**: what no hook covers, such as a convolution or a state-space model's step sizes, takes a backward pass of
  each rollout on its own, as exactly: together about one more pass, and a dense gradient per rollout is held. Given
  are the share of the weights and, in brackets, of the gradient's energy Σ‖S_i‖².
- **left out**: what would take more than 8 passes of 1 GiB of such gradients; it is named, with its share. Here
  nothing is so large.
- **bfloat16**: difference of the Gram matrix (Frobenius, relative) from a float32 twin with the same weights.
  Rounding may send a token to another expert, and these models' weights are far noisier than a trained model's. Tests
  hold it to 0.2, and to 0.5 for hybrids with experts.

The self-check compares the sum of scores with autograd before the first probe of every run, with rollouts that count
differently. It refuses a model whose gradients it cannot put together (above 0.1 % in float32, 10 % in 16 bits), in
one line, with nothing computed.

| family | tries | Gram matrix | parameters measured | of these apart | left out | bfloat16 |
|---|---|---|---|---|---|---|
"""


def page(rows: Sequence[Row]) -> str:
    """The page families.md."""
    lines = ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return HEADER + "\n".join(lines) + f"\n\ntransformers {transformers.__version__}, torch {torch.__version__}.\n"


def installed(name: str) -> bool:
    """Whether the package that a family needs is there."""
    return not FAMILIES[name].needs or find_spec(FAMILIES[name].needs) is not None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("families", nargs="*", choices=[*FAMILIES, []], help="all unless named")
    names = arguments.parse_args().families
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    rows = []
    for name in names or [name for name in FAMILIES if installed(name)]:
        row = measure(name)
        rows.append(row)
        print(" | ".join(row.cells()), f"| {row.error:.1e} {row.worst:.1e} {row.norms:.1e}", flush=True)
    if not names:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
