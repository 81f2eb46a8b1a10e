"""How long `verify` takes to say which of three checkpoints wrote some rollouts, and whether it is right.

    python benchmarks/verify_checkpoints.py [--model smollm2] [--prompts 16] [--group 4] [--tokens 128]

The second of three checkpoints draws the rollouts; each is the first one with noise on its weights, a hundredth of
their size, as an update may change them. Prints the first lines of the command and its wall time; the last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from grposcope.core.files import dumps
from grposcope.core.rollouts import Rollout
from grposcope.instruments.verify import row_file
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling


def main() -> None:
    """Draw, save, run the command, and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("prompts", 16), ("group", 4), ("tokens", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--model", default="smollm2")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        policy = policies.load(given.model)
        task = tasks.load("arithmetic", None)
        torch.manual_seed(0)
        for number in range(3):
            policy.model.save_pretrained(folder / f"step-{number}")
            policy.tokenizer.save_pretrained(folder / f"step-{number}")
            if number == 1:
                size = given.prompts, given.group
                drawn = Sampling(given.tokens, 1.0)
                batch = collect(policy, task, task.problems("train"), recipes.GRPO, drawn, size, 0, 0).rollouts
            with torch.no_grad():
                for parameter in policy.model.parameters():
                    parameter.add_(torch.randn_like(parameter) * 1e-2 * parameter.abs().mean())
        rows = zip(batch.prompt_ids, batch.prompt_mask, batch.tokens, batch.mask, strict=True)
        with (folder / "rollouts.jsonl").open("w") as file:
            for i, (prompt, seen, ids, kept) in enumerate(rows):
                row = Rollout("", 2, str(i // given.group), prompt_ids=prompt[seen].numpy(),
                                  completion_ids=ids[kept].numpy())  # fmt: skip
                file.write(dumps(row_file._document(row)) + "\n")
        checkpoints = [str(folder / f"step-{number}") for number in range(3)]
        began = time.perf_counter()
        command = [sys.executable, "-m", "grposcope", "verify", str(folder / "rollouts.jsonl"), "--model", *checkpoints]
        said = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        if said.returncode == 2:
            raise SystemExit(said.stderr)
        document = json.loads(said.stdout)
    told = {claim["claim"]: claim["status"] for claim in document["claims"]
            if any(finding["status"] != "cannot tell" for finding in claim["findings"])}  # fmt: skip
    tokens = int(batch.mask.sum())
    (checkpoints_claim,) = [claim for claim in document["claims"] if claim["claim"] == "checkpoints"]
    evidence = [finding["because"] for finding in checkpoints_claim["findings"]][:1]
    print(
        json.dumps(
            {
                "evidence": evidence,
                "rollouts": len(batch.mask),
                "tokens": tokens,
                "seconds": round(seconds, 1),
                "claims": told,
            }
        )
    )


if __name__ == "__main__":
    main()
