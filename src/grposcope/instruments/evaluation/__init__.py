"""pass@k of models on tasks, with intervals over problems and seeds, compared on the same problems."""

from grposcope.core.instrument import Command, Instrument

INSTRUMENT = Instrument(
    "evaluation",
    "Which model is better, and by how much?",
    commands=(
        Command(
            "evaluate",
            "train",
            "pass@k of models on tasks with intervals, compared on the same problems",
            "grposcope.instruments.evaluation.command",
        ),
    ),
)
