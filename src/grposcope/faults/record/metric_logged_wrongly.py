"""The trainer logs a metric wrongly in this version.

Asked as
    clip_ratio does not match the completions
What it is
    The number under a key is another quantity than its name says: a share of the longest completion instead of the
    limit, a sum without its weights, a share above one. The training itself is right.
How it shows
    The version of the trainer has the defect, or the numbers of the log prove it. A key whose number is wrong is left
    out of its metric and keeps its own name.
What it does to the gradient
    Nothing. What is concluded from the metric is wrong, by a person or by a tool.
What to do
    Do not conclude anything from it, and use a version of the trainer that logs it correctly.
What decides
    The same quantity from the rollouts: grposcope verify FOLDER compares the log with them.
Sources
    verl #7817: https://github.com/verl-project/verl/issues/7817
    TRL #5352: https://github.com/huggingface/trl/issues/5352
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.run import Run
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.logs.trainers import defect
from grposcope.signs.rollouts.claims import metrics


def sentences(run: Run) -> tuple[str, ...]:
    """What is wrong with each metric that this version of the trainer logs wrongly, as the notes on the log say it."""
    names = run.reading.defects if run.reading is not None else ()
    return tuple(str(defect(name, run.meta.engine)) for name in names)


def _of_reading(run: Run) -> Iterator[Finding]:
    """The metrics that were found to be logged wrongly when the log was read; nothing where there are none."""
    if not (told := sentences(run)) or run.reading is None:
        return
    wrong = [defect(name, run.meta.engine) for name in run.reading.defects]
    keys = [key for defect in wrong for key in defect.keys]
    yield fact(
        True,
        "; ".join(told),
        [Sign(f"{key} is logged wrongly", where=key) for key in keys],
        grade="note",
        brief=f"{' and '.join(keys)} {'is' if len(keys) == 1 else 'are'} logged wrongly",
    )


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """What the earlier run logged wrongly, and so will this one unless the trainer is of another version."""
    run = facts.run
    if run is None or run.reading is None or run.meta.engine != config.dialect.name:
        yield cannot_tell(f"this needs the log of an earlier run of {config.dialect.title}", "earlier run")
        return
    for name in run.reading.defects:
        wrong = defect(name, run.meta.engine)
        yield fact(True, f"it {wrong.what} ({wrong.thread})", grade="note",
                   brief=f"{wrong.keys[0]} is logged wrongly", remedy=wrong.remedy)  # fmt: skip


FAULT = Fault(
    name="metric logged wrongly",
    rank=260,
    remedy="conclude nothing from this metric, and use a version of the trainer that logs it correctly",
    instead="note",
    settings=SettingsCheck(
        "metric logged wrongly",
        _settings,
        ("trl", "verl"),
        "metrics that the trainer of an earlier run logs wrongly",
        ("note",),
    ),
    reading=_of_reading,
    rollouts=(metrics.PROOF,),
)
