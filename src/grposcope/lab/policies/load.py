"""Load a causal language model with its tokenizer, and turn prompts into token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import HfApi, try_to_load_from_cache
from packaging.version import Version
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from grposcope.core.errors import UserError, lost_device
from grposcope.lab.batch_memory import free_memory
from grposcope.lab.policies import adapters, smollm2

TINY, TABLES = Path(__file__).parent / "tiny", Path(__file__).parent / "tables"

SHIPPED: Mapping[str, Callable[[], Path]] = {
    "tiny": lambda: TINY, "tables": lambda: TABLES, "smollm2": smollm2.folder
}  # fmt: skip
"""Models that need no hub -> what makes their folder."""

TRAINED_ON: Mapping[str, str] = {"tiny": "0123456789+-=", "tables": "0123456789+=?;abcdefghij"}
"""Shipped models -> all characters that they were made on: others have a token, and nothing was learned of it."""


@dataclass(frozen=True)
class Policy:
    """A model ready to sample from and to train.

    name: as asked for. eos: ids that end a completion, (E,). pad: the padding id.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    eos: Tensor
    pad: int

    @property
    def context(self) -> int:
        """The longest sequence, prompt and completion together, in tokens."""
        return int(getattr(self.model.config, "max_position_embeddings", 0) or 2**31)

    @property
    def parameters(self) -> int:
        """Number of parameters, tied ones counted once."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def small(self) -> bool:
        """Whether the model has fewer than 10 million parameters, so that defaults can be generous."""
        return self.parameters < 10_000_000

    @property
    def learning_rate(self) -> float:
        """A cautious default for AdamW at this size."""
        return 4e-4 if self.small else 1e-6


def load(name: str, dtype: torch.dtype | None = None, device: str = "cpu", remote_code: bool = False) -> Policy:
    """Load `tiny`, `tables`, `smollm2`, a folder saved by `save_pretrained`, or a model of the Hugging Face hub.

    A folder with adapters (PEFT) gives their base model with the adapters in place, and only these can be trained.
    Only safetensors weights are read, and no code from the hub runs unless `remote_code` is set.
    Dropout is off: the policy that is trained is the policy that was sampled. dtype: float32 where it is not given.
    """
    dtype = torch.float32 if dtype is None else dtype
    if not (Path(name) / "config.json").is_file() and (Path(name) / adapters.CONFIG).is_file():
        base = load(adapters.base_of(Path(name)), dtype, "cpu", remote_code)
        with_adapters = _attached(base.model, Path(name), dtype)
        tokenizer = base.tokenizer
        if (Path(name) / "tokenizer_config.json").is_file():
            with _loading(name):
                tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=remote_code)
        return replace(
            base, name=name, model=with_adapters.to(device).eval(), tokenizer=tokenizer, eos=base.eos.to(device)
        )
    check(name)
    source = SHIPPED[name]() if name in SHIPPED else name
    with _loading(name):
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=remote_code)
        model: Any = AutoModelForCausalLM.from_pretrained(
            source, trust_remote_code=remote_code, use_safetensors=True, **{dtype_argument(): dtype}
        )
    model.to(device).eval()
    eos = _end_tokens(model, tokenizer)
    if not eos:
        raise UserError(f"model {name!r} names no end-of-text token; set eos_token_id in its config.json")
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else eos[0]
    return Policy(name, model, tokenizer, torch.tensor(eos, device=device), pad)


def dtype_argument() -> str:
    """Name under which transformers takes the number format of the weights."""
    return "dtype" if Version(transformers.__version__) >= Version("4.56") else "torch_dtype"


def device(name: str) -> str:
    """The device that `cpu`, `cuda…` or `auto` names; UserError for a CUDA device that this PyTorch does not see."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device {name}: this PyTorch sees no CUDA device; use device cpu")
    return name


def available_memory(device: torch.device) -> float:
    """Bytes free on the device; on a CPU those the system can still give, infinite where it does not say.

    What PyTorch holds of a GPU for later use counts as free: it is given to the next arrays.
    """
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + cached)
    return free_memory()


def check(name: str) -> None:
    """UserError where `name` is a path without a model, or no model of the hub, as is seen without loading it."""
    here = any((Path(name) / file).is_file() for file in ("config.json", adapters.CONFIG))
    if _looks_like_path(name) and not here:
        raise UserError(f"no model in {name}: a model folder holds config.json; check the path")
    if not here and name not in SHIPPED:
        try:
            _check_hub(name)
        except (OSError, ValueError) as error:
            raise _cannot_load(name, error) from error


def _attached(base: Any, folder: Path, dtype: torch.dtype) -> Any:
    """The model `base` with the adapters of `folder` in its layers, its own weights frozen; UserError without PEFT.

    Only safetensors are read.
    """
    if not (folder / "adapter_model.safetensors").is_file():
        raise UserError(
            f"{folder} has no adapter_model.safetensors, the only kind that is read; save the adapters again in that "
            "format"
        )
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError(f"{folder} holds adapters, which need peft; pip install peft") from None
    try:
        model = PeftModel.from_pretrained(base, str(folder), is_trainable=True)
    except Exception as error:  # of PEFT, for what a damaged folder holds: of any kind
        if isinstance(error, ImportError) or lost_device(error):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"cannot load the adapters in {folder}: {reason}; give the whole folder of the checkpoint"
        ) from None
    return model.get_base_model().to(dtype)


def encode(policy: Policy, prompts: Sequence[str], instruction: str = "", room: int = 0) -> tuple[Tensor, Tensor]:
    """Token ids (P, S) padded on the left, and their mask.

    A model with a chat template gets the instruction and the prompt as system and user message,
    any other model the prompt alone. UserError where a prompt has no tokens, or leaves less than
    `room` tokens of the context for a completion.
    """
    tokenizer = policy.tokenizer
    if tokenizer.chat_template:
        system = [{"role": "system", "content": instruction}] if instruction else []
        texts = [
            tokenizer.apply_chat_template(
                [*system, {"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
            )
            for prompt in prompts
        ]
        rows = [tokenizer(text, add_special_tokens=False).input_ids for text in texts]
    else:
        rows = [tokenizer(prompt).input_ids for prompt in prompts]
    width = max(1, max(len(row) for row in rows))
    ids = torch.full((len(rows), width), policy.pad, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for index, row in enumerate(rows):
        if not row:
            raise UserError(f"prompt {prompts[index]!r} has no tokens; give it some text")
        if len(row) + room > policy.context:
            raise UserError(
                f"prompt {prompts[index][:60]!r} has {len(row)} tokens, and with a completion of {room} that is more "
                f"than the {policy.context} tokens of context of model {policy.name}; lower max_tokens or drop it"
            )
        ids[index, width - len(row) :] = torch.tensor(row)
        mask[index, width - len(row) :] = True
    device = policy.model.device
    return ids.to(device), mask.to(device)


def recompute_activations(model: Any) -> None:
    """Recompute activations in the backward pass, which saves memory.

    Models do so in training mode only, so dropout is set to 0 first.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()


def recomputes_activations(model: nn.Module) -> bool:
    """Whether the model recomputes activations in the backward pass, which it does in training mode only."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def _looks_like_path(name: str) -> bool:
    """Whether a name cannot be one of the hub, which has one slash at most."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith("/") or Path(name).is_dir()


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """UserError for whatever transformers raises of a damaged model, which is of any kind."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ImportError) or lost_device(error):
            raise
        raise _cannot_load(name, error) from error


def _cannot_load(name: str, error: Exception) -> UserError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return UserError(
        f"cannot load model {name!r}: {reason} - use tiny, smollm2, a folder, or a hub name such as "
        "Qwen/Qwen2.5-0.5B-Instruct (needs a network)"
    )


def _check_hub(name: str) -> None:
    """Ask the hub once whether it has the model, unless that is cached; OSError if it has not, or does not answer.

    Loading asks file by file and again for half a minute each, which a mistyped name or a missing network should not
    take.
    """
    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    try:
        exists = HfApi().file_exists(name, "config.json")
    except Exception as error:  # of the HTTP library, which differs between versions of the hub's client
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise OSError(f"it is not in the cache, and the hub does not answer ({reason})") from error
    if not exists:
        raise OSError("it is neither a folder nor a model of the hub that your token, if any, may see")


def _end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """End-of-text ids of the generation config and the tokenizer, without repeats."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    listed = configured if isinstance(configured, list) else [configured]
    return list(dict.fromkeys(int(t) for t in [*listed, tokenizer.eos_token_id] if t is not None))
