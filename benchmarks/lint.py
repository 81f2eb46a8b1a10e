"""What `grposcope lint` says of published settings: a line per file, whose counts benchmarks/lint.md has.

    python benchmarks/lint.py CHECKOUT...

CHECKOUT: folders of trainers as their authors publish them: TRL, open-r1, verl, NeMo-RL, prime-rl, SkyRL, slime,
OpenRLHF and ms-swift. Files without settings that can be read are listed with the reason. No success rate and no
earlier run is given, so that only the settings are judged.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

from grposcope.core.errors import UserError
from grposcope.faults.judge_settings import lint, word
from grposcope.instruments.lint.read import read

FILES = re.compile(
    r"(grpo|rloo|gspo|cispo|dapo)[^/]*(/[^/]*)*\.(sh|yaml|py|ipynb)$|/(run|train)[-_][^/]*\.sh$|\.toml$", re.I
)
PLACES = ("configs", "examples", "recipes", "recipe", "scripts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", nargs="+", type=Path)
    grades: Counter[str] = Counter()
    for checkout in parser.parse_args().checkouts:
        print(f"\n## {checkout.name}\n\n| file | read as | verdict | findings |\n|---|---|---|---|")
        paths = [path for place in PLACES for path in sorted((checkout / place).rglob("*")) if FILES.search(str(path))]
        for path in paths:
            name = path.relative_to(checkout)
            try:
                config = read(path)
            except UserError as error:
                print(f"| {name} | not read | | {str(error).removeprefix(str(path)).strip(': ')[:90]} |")
                grades["not read"] += 1
                continue
            findings = lint(config)
            told = "; ".join(f"{finding.grade}: {finding.brief}" for finding in findings if finding.present)
            grade = word(findings, config)
            grades[grade] += 1
            print(f"| {name} | {config.form.partition(' in line')[0]} | {grade} | {told} |")
    print(f"\n{sum(grades.values())} files: {', '.join(f'{n} {grade}' for grade, n in grades.most_common())}")


if __name__ == "__main__":
    main()
