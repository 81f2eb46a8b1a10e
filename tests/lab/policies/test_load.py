"""Loading models and encoding prompts."""

from __future__ import annotations

import json
import shutil
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants, file_download

from grposcope.core.errors import UserError
from grposcope.lab import policies
from grposcope.lab.policies import Policy, encode
from grposcope.lab.policies.load import TINY
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.train import pretrain


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return policies.load("tiny")


def test_tiny_ships_small_and_safe(tiny: Policy) -> None:
    files = {f.name: f.stat().st_size for f in TINY.iterdir()}
    assert sum(files.values()) <= 8e6
    assert {Path(name).suffix for name in files} <= {".json", ".safetensors", ".jinja"}
    assert 1e6 <= tiny.parameters <= 2e6
    assert not tiny.model.training


def test_tiny_is_what_its_script_describes(tiny: Policy) -> None:
    tokens = pretrain._tokenizer()
    assert tokens.get_vocab() == tiny.tokenizer.get_vocab()
    fresh = pretrain._model(len(tokens))
    assert {n: p.shape for n, p in fresh.named_parameters()} == {n: p.shape for n, p in tiny.model.named_parameters()}
    assert tiny.eos.tolist() == [pretrain.EOS]
    assert tiny.pad == pretrain.PAD


@pytest.mark.slow
def test_tiny_starts_near_three_in_ten() -> None:
    accuracy = pretrain._accuracy(TINY, temperature=1.0)
    assert 0.2 < accuracy.value < 0.4
    assert accuracy.n == 1000


def test_characters_survive_encoding(tiny: Policy) -> None:
    text = "3+8-5=\n~ Az"
    ids, mask = encode(tiny, [text, "1"])
    assert mask.sum(-1).tolist() == [len(text), 1]
    assert ids[1, :-1].tolist() == [tiny.pad] * (len(text) - 1)
    assert tiny.tokenizer.decode(ids[0]) == text
    assert tiny.tokenizer.decode(ids[1][mask[1]]) == "1"


def test_a_chat_template_gets_instruction_and_prompt(tiny: Policy) -> None:
    plain = tiny.tokenizer.chat_template
    try:
        tiny.tokenizer.chat_template = "{% for m in messages %}[{{m.role}}]{{m.content}}{% endfor %}>"
        ids, _ = encode(tiny, ["2+2="], "add")
        assert tiny.tokenizer.decode(ids[0]) == "[system]add[user]2+2=>"
    finally:
        tiny.tokenizer.chat_template = plain


def test_prompts_that_cannot_be_used(tiny: Policy) -> None:
    with pytest.raises(UserError, match="has no tokens"):
        encode(tiny, ["1", ""])
    with pytest.raises(UserError, match=r"'7777.*' has 500 tokens, and with a completion of 20"):
        encode(tiny, ["1", "7" * 500], room=20)


def test_pickled_weights_are_refused(tmp_path: Path, tiny: Policy) -> None:
    tiny.model.config.save_pretrained(tmp_path)
    tiny.tokenizer.save_pretrained(tmp_path)
    torch.save(tiny.model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot load model"):
        policies.load(str(tmp_path))


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_hidden_layers", float("inf")), ("num_hidden_layers", "two"), ("hidden_size", -8), ("hidden_size", 0),
     ("num_attention_heads", 0), ("vocab_size", 3), ("rope_theta", [1]), ("model_type", 5), ("torch_dtype", "no"),
     ("hidden_act", "nothing"), ("rms_norm_eps", "small"), ("eos_token_id", "end")],
)  # fmt: skip
def test_a_damaged_configuration_is_refused_or_harmless(field: str, value: object, tmp_path: Path) -> None:
    """Whatever transformers raises for it; a model that it makes all the same has weights, and no text is a size."""
    shutil.copytree(TINY, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    try:
        model = policies.load(str(tmp_path / "model")).model
    except UserError as error:
        assert str(tmp_path / "model") in str(error)  # noqa: PT017  # which of the two it is depends on the version
    else:
        assert field != "num_hidden_layers"
        assert sum(weight.numel() for weight in model.parameters()) > 0


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder"])
def test_folders_without_a_model(name: str) -> None:
    with pytest.raises(UserError, match=r"a model folder holds config\.json"):
        policies.load(name)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "not in the cache, and the hub does not answer"),
        (503, "the hub does not answer .*503"),
        (404, "neither a folder nor a model of the hub"),
    ],
)
def test_the_hub_is_asked_once(answer: int | None, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in the hub's place that hangs up, is out of order, or has no such model."""
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            if answer is None:
                self.connection.close()
                return
            self.send_response(answer)
            if answer == 404:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Be quiet."""

    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        here = f"http://127.0.0.1:{server.server_port}"
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
        for module in (constants, file_download):  # the older client has a copy of its own
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", here + template, raising=False)
        monkeypatch.setattr(constants, "ENDPOINT", here)
        with pytest.raises(UserError, match=words) as error:
            policies.load("no-one/has-this")
        server.shutdown()
    assert "\n" not in str(error.value)
    times = len(asked) if int(huggingface_hub.__version__.partition(".")[0]) < 1 else 1  # the older client asks again
    assert asked == ["/no-one/has-this/resolve/main/config.json"] * times


def test_a_pupil_who_forgets_the_carry() -> None:
    import random

    rng = random.Random(0)
    never, always = pretrain._Lesson(1, 1e-3, 0.0, 0.0), pretrain._Lesson(1, 1e-3, 1.0, 0.0)
    assert pretrain._careless("7+8-3", never, rng) == ["15-3", "12"]
    assert pretrain._careless("7+8-3", pretrain._Lesson(1, 1e-3, 0.0, 1.0), rng) == ["16-3", "14"]
    assert pretrain._careless("7+8-3", always, rng) == ["5-3", "2"]
    assert pretrain._careless("21-5+1", always, rng) == ["26+1", "27"]  # the borrow forgotten; 26+1 has no carry
    assert pretrain._careless("7+8-9", always, rng) == ["15-9", "16"]  # 5-9 would fall below 0, so no slip there
    task = Arithmetic(size=300)
    for problem in task.problems("train"):
        chain = pretrain._careless(problem.prompt[:-1], pretrain._Lesson(1, 1e-3, 0.5, 0.1), rng)
        slips = [not step.correct for step in task.steps(problem, "=".join(chain))]
        assert (chain[-1] == problem.answer) or any(slips)
