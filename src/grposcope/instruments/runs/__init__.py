"""What there is to know of any run at a glance, runs beside each other, and all that is recorded, to be looked through.

overview       the first things to know; identity: which run it is; measurements: of a folder without a run
command_runs   `grposcope runs`; run_lines: a line for each run; table: of all of them
compare/       by how much runs differ, and where they part; reference/: whether a run goes like runs that went well
course         curves of recorded metrics; timing: where the time goes
rollouts       the viewer of prompts and completions; settings: those of the runs, and metrics shown nowhere else
notebook       how runs, answers and findings show themselves in a notebook
"""

from grposcope.core.instrument import Command, Instrument

OVERVIEW = Instrument(
    "overview",
    "How is this run?",
    commands=(
        Command(
            "runs",
            "look at a run",
            "list all runs of a folder with their verdicts",
            "grposcope.instruments.runs.command_runs",
        ),
    ),
    uses=("diagnosis",),
)
COMPARE = Instrument(
    "compare",
    "Where do these runs differ?",
    commands=(
        Command(
            "compare",
            "look at a run",
            "compare runs: by how much they differ, and since when",
            "grposcope.instruments.runs.compare.command",
        ),
    ),
    uses=("diagnosis",),
)
REFERENCE = Instrument("reference", "Does this run behave like the good ones?")
COURSE = Instrument("course", "What did training do, step by step?", answers="grposcope.instruments.runs.course")
TIMING = Instrument("timing", "Where does the time go?", answers="grposcope.instruments.runs.timing_answer")
ROLLOUTS = Instrument("rollouts", "What did the policy write?", answers="grposcope.instruments.runs.rollouts")
SETTINGS = Instrument("settings", "What else is recorded?", answers="grposcope.instruments.runs.settings")
INSTRUMENTS = (OVERVIEW, COMPARE, REFERENCE, COURSE, TIMING, ROLLOUTS, SETTINGS)
