"""The commands of `grposcope`, a file each: `add_flags` declares its flags, `run` does its work.

They are imported when asked for, so that a quick command does not wait for what a slow one needs.
"""

HELP = {
    "train": "train a language model with GRPO or a relative from verifiable rewards",
    "report": "draw one page about one or several runs",
    "runs": "list all runs of a folder with their verdicts",
    "watch": "follow a running run in the terminal",
    "diagnose": "say what is wrong with a run, since when, why, and what to do",
    "compare": "put runs side by side, with the step where they diverge",
    "probe": "measure what a gradient is made of: spectra, credit, sparsity, baseline",
    "plan": "choose the group size from a probe, or see what a run's rewards say of it",
    "fit": "fit and forecast the reward curve of a run",
    "simulate": "sweep softmax bandits under GRPO and compare with the closed form",
    "stability": "the largest stable refresh interval, and how far a setting is from it",
}
"""The commands in the order of `grposcope --help`, and a line about each."""
