"""The commands of `grposcope`, a file each: `add_flags` declares its flags, `run` does its work.

They are imported when asked for, so that a quick command does not wait for what a slow one needs.
"""

GROUPS = {
    "look at a run": {
        "diagnose": "say what is wrong with a run, since when, why, and what to do",
        "report": "draw one page about one or several runs",
        "watch": "follow a running run in the terminal",
        "runs": "list all runs of a folder with their verdicts",
        "compare": "put runs side by side, with the step where they diverge",
    },
    "plan the next one": {
        "lint": "say what will go wrong with the settings of TRL or verl, before the run",
        "probe": "measure what a gradient is made of: rank, credit, sparsity",
        "credit": "say whether finer credit would help, what it would save and cost",
        "plan": "choose the rollouts per prompt, from a probe or a run's rewards",
        "fit": "fit and forecast the reward curve of a run",
        "stability": "how long rollouts may be reused before training blows up",
        "simulate": "sweep softmax bandits under GRPO and compare with the closed form",
    },
    "train": {
        "train": "train a model with GRPO or a relative from verifiable rewards",
        "evaluate": "pass@k of models on tasks with intervals, compared on the same problems",
        "sweep": "train over a grid of settings and seeds, and compare the cells",
    },
}
"""What people want -> the commands for it, with a line about each, in the order of `grposcope --help`."""

HELP = {name: line for commands in GROUPS.values() for name, line in commands.items()}
"""Command -> its line of help."""


def listing() -> str:
    """All commands by purpose, as `grposcope --help` shows them."""
    lines = []
    for purpose, commands in GROUPS.items():
        lines += [f"{purpose}:", *(f"  {name:<10} {line}" for name, line in commands.items()), ""]
    return "\n".join([*lines, "grposcope COMMAND --help shows the flags of a command and examples."])
