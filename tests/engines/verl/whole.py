"""verl's whole trainer on Ray and the CPU: `main_ppo` with a rollout server of Hugging Face models.

    .venv-verl/bin/python tests/engines/verl/whole.py FOLDER [override …]

Writes FOLDER/log.txt (what is printed), FOLDER/metrics.jsonl (verl's file logger) and FOLDER/rollouts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "engines.verl.cpu,engines.verl.hf_rollout",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HYDRA_FULL_ERROR": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def data(folder: Path, prompts: int = 64) -> Path:
    """A parquet file of arithmetic problems in verl's form."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from grposcope.lab.tasks.arithmetic import Arithmetic

    rows = [
        {
            "data_source": "arithmetic",
            "prompt": [{"role": "user", "content": problem.prompt}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": problem.answer},
            "extra_info": {"index": i, "problem": problem.prompt},
        }
        for i, problem in enumerate(Arithmetic().problems("train")[:prompts])
    ]
    path = folder / "train.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def command(folder: Path, overrides: list[str]) -> list[str]:
    """`main_ppo` for some steps of four prompts with four rollouts each."""
    from grposcope.lab.policies.load import TINY

    train = data(folder)
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return [
        sys.executable, "-m", "verl.trainer.main_ppo",
        f"data.train_files={train}", f"data.val_files={train}", "data.train_batch_size=4",
        "data.max_prompt_length=32", "data.max_response_length=24", "data.dataloader_num_workers=0",
        f"actor_rollout_ref.model.path={TINY}", f"actor_rollout_ref.model.custom_chat_template=\"{TEMPLATE}\"",
        "actor_rollout_ref.model.use_remove_padding=False",
        "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        f"{actor}.strategy=fsdp2", f"{actor}.optim.lr=1e-4", f"{actor}.ppo_mini_batch_size=4",
        f"{actor}.ppo_micro_batch_size_per_gpu=8", f"{actor}.use_torch_compile=False",
        f"{actor}.fsdp_config.model_dtype=fp32", f"{actor}.fsdp_config.dtype=float32",
        f"+{actor}.fsdp_config.mixed_precision={{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}}",
        f"{rollout}.name=hf", f"{rollout}.n=4", f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.log_prob_micro_batch_size_per_gpu=8", f"{rollout}.agent.num_workers=1",
        f"reward.custom_reward_function.path={HERE / 'reward.py'}", "reward.custom_reward_function.name=outcome",
        "reward.num_workers=1",
        "algorithm.adv_estimator=grposcope_standardized",
        "trainer.device=cpu", "trainer.n_gpus_per_node=1", "trainer.nnodes=1", "trainer.total_training_steps=3",
        "trainer.logger=['console','file']", "trainer.val_before_train=False", "trainer.test_freq=-1",
        "trainer.save_freq=-1", f"trainer.default_local_dir={folder}",
        f"trainer.rollout_data_dir={folder / 'rollouts'}", "trainer.project_name=grposcope",
        "trainer.experiment_name=whole",
        "ray_kwargs.ray_init.num_cpus=16", "+ray_kwargs.ray_init.num_gpus=1",
        "+ray_kwargs.ray_init.include_dashboard=False",
        *overrides,
    ]  # fmt: skip


def run(folder: Path, overrides: list[str], limit: float = 1500) -> int:
    """Exit status of the trainer; what it prints is in FOLDER/log.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join(
            [str(HERE.parents[1]), str(HERE.parents[1] / "helpers"), os.environ.get("PYTHONPATH", "")]
        ),
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
    }
    with (folder / "log.txt").open("w") as log:
        return subprocess.run(
            command(folder, overrides), env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT, timeout=limit
        ).returncode


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]).resolve(), sys.argv[2:]))
