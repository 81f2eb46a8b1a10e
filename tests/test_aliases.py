"""Import paths of earlier versions give the modules of today, in whatever order they are imported first."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from alike import alike

from grposcope import aliases

PROMISED = (
    "from grposcope import Answer, Estimate, Finding, Run, UserError, __version__",
    "from grposcope import diagnose, lint, read, report, verify",
    "from grposcope.objectives import recipes, advantages; recipes.ALL['grpo'], advantages.ALL['leave_one_out']",
    "from grposcope.geometry import *; spectrum.ranks([1.0]), probe.probe",
    "from grposcope.ustat import moments, mse, planning, limit; moments.from_gram, planning.optimal_group",
    "from grposcope.ustat import *; mse.budget, pass_at_k.pass_at_k",
    "from grposcope.dynamics import oscillator, refresh, noise, fit, bandit, sampled_refresh; fit.forecast",
    "from grposcope.dynamics import *; refresh.threshold, bandit.Bandit",
    "from grposcope.runs import read; from grposcope.logs import read as same; assert read is same",
    "from grposcope.diagnosis import diagnose, Finding",
    "from grposcope.training.loop import train; from grposcope.training.config import TrainConfig",
    "from grposcope.engines.trl import GRPOscopeCallback, GRPOscopeTrainer",
    "from grposcope.runs.run import Run; from grposcope.runs import Run as same, read; assert Run is same",
    "from grposcope.records import Rollouts, Estimate, rows_of_groups",
    "import grposcope as g; g.geometry, g.ustat, g.dynamics, g.runs.read, g.training, g.engines, g.objectives",
    "import grposcope.lint as l; from grposcope import lint; assert l is lint and callable(lint), lint.Settings",
    "import grposcope.geometry.spectrum as s; s.ranks",
    "import grposcope.ustat.mse as m, grposcope.ustat as u; m.budget, u.__all__",
    "import grposcope.dynamics.refresh, grposcope.runs; grposcope.dynamics.refresh.threshold, grposcope.runs.read",
)
"""What READMEs of earlier versions and of this one tell to import, each in an interpreter that has imported nothing."""

FRESH = """
import collections, os, sys
import scipy.signal, torch, transformers
for line in sys.stdin:
    sys.stdout.flush()
    if not (child := os.fork()):
        exec(line)
        ours = {name: one for name, one in sys.modules.items() if name.startswith("grposcope")}
        files = collections.Counter(one.__file__ for one in {id(one): one for one in ours.values()}.values()
                                    if getattr(one, "__file__", None))
        twice = [file for file, count in files.items() if count > 1]
        assert not twice, twice
        os._exit(0)
    print(line.strip(), "" if os.waitpid(child, 0)[1] == 0 else "failed")
"""


@pytest.mark.slow
def test_what_is_promised_can_be_imported_and_no_module_is_loaded_twice() -> None:
    """In one process with torch that forks: a child for each, which has imported nothing of ours before."""
    done = subprocess.run(
        [sys.executable, "-c", FRESH], input="\n".join(PROMISED) + "\n", capture_output=True, text=True, check=True
    )
    said = done.stdout.splitlines()
    assert len(said) == len(PROMISED)
    assert not [line for line in said if line.endswith("failed")], done.stderr[-2000:]


@pytest.mark.parametrize(("earlier", "now"), aliases.ALIASES.items())
def test_an_earlier_path_is_the_very_module_of_today(earlier: str, now: str) -> None:
    module = importlib.import_module(now)
    assert importlib.import_module(earlier) is module
    assert module.__name__ == now
    assert module.__spec__ is not None
    assert module.__spec__.name == now
    parent, _, last = earlier.rpartition(".")
    assert getattr(sys.modules[parent], last) is module


def test_below_a_renamed_package_every_module_is_found_and_is_not_loaded_twice() -> None:
    from grposcope.instruments.diagnosis import verdict

    assert importlib.import_module("grposcope.diagnosis.verdict") is verdict
    with pytest.raises(ModuleNotFoundError, match=r"grposcope\.diagnosis\.nothing"):
        importlib.import_module("grposcope.diagnosis.nothing")


def test_a_package_that_went_to_several_places_says_where() -> None:
    ustat = importlib.import_module("grposcope.ustat")
    assert ustat.__all__ == ["limit", "moments", "mse", "pass_at_k", "planning"]
    assert "grposcope.maths.moments" in (ustat.__doc__ or "")


def test_what_was_pickled_under_an_earlier_path_is_read() -> None:
    from grposcope.lab.train.config import TrainConfig

    config = TrainConfig(steps=3, group=4)
    assert pickle.loads(pickle.dumps(config)) == config
    earlier = pickle.dumps(config, protocol=0).replace(
        b"cgrposcope.lab.train.config\n", b"cgrposcope.training.config\n"
    )
    assert b"grposcope.training.config" in earlier
    assert pickle.loads(earlier) == config


def test_a_module_runs_by_its_earlier_name() -> None:
    """`python -m grposcope.training.pretrain` asks for the origin of a module and for its code."""
    from grposcope.lab.train import pretrain

    spec = aliases._Aliases().find_spec("grposcope.training.pretrain")
    assert spec is not None
    assert spec.origin == pretrain.__file__
    code = aliases._Aliases().get_code("grposcope.training.pretrain")
    assert code is not None
    assert code.co_filename == pretrain.__file__


LIGHT = """
import sys
import grposcope
names = {"read", "diagnose", "verify", "lint", "report"}
packages = {"objectives", "geometry", "ustat", "dynamics", "runs", "diagnosis", "training", "engines"}
assert names | packages | set(grposcope.__all__) <= set(dir(grposcope))
assert all(callable(getattr(grposcope, name)) for name in names)
from grposcope.runs.run import Run
from grposcope.records import Estimate
assert Run is grposcope.Run and Estimate is grposcope.Estimate
assert "torch" not in sys.modules
"""


def test_the_promised_names_are_listed_and_found_without_torch() -> None:
    subprocess.run([sys.executable, "-c", LIGHT], check=True)


def test_a_module_whose_names_went_to_several_has_them_and_no_other() -> None:
    records = importlib.import_module("grposcope.records")
    assert records.__all__ == ["Estimate", "Rollouts", "rows_of_groups"]
    with pytest.raises(AttributeError, match=r"grposcope\.records.*nothing"):
        records.nothing  # noqa: B018


def test_lint_is_a_package_and_a_function_of_a_file(tmp_path: Path) -> None:
    from grposcope.lint import Settings, read

    from grposcope import lint

    (tmp_path / "config.yaml").write_text("num_generations: 1\n")
    result = lint(tmp_path / "config.yaml")
    assert result[0].grade == "failing"
    config = read.read(tmp_path / "config.yaml")
    assert isinstance(config, Settings)
    assert alike(lint(config), result)
