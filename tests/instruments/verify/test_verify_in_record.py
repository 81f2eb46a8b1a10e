"""The page says what the claims came to while a run trained."""

from __future__ import annotations

import json
from pathlib import Path

import synthetic

from grposcope.instruments.verify import in_record, row_file
from grposcope.logs import read

HOLDS = {"status": "holds"}
BROKEN = {"status": "broken", "fault": "ddof <b>", "evidence": "row 3 differs.", "p": None, "remedy": "Set ddof."}


def test_broken_from_the_first_look_on(tmp_path: Path) -> None:
    run = synthetic.make(tmp_path / "run", steps=20)
    assert in_record.answers([read(run)], None) == []
    looks = [
        {
            "step": 1,
            "rollouts": 64,
            "claims": {"groups": HOLDS, "advantages": HOLDS, "resume": {"status": "cannot tell"}},
        },
        {"step": 11, "rollouts": 64, "claims": {"groups": HOLDS, "advantages": BROKEN}},
        {"step": 21, "rollouts": 64, "claims": {"groups": HOLDS, "advantages": BROKEN}},
    ]
    (run / row_file.FOLDER).mkdir()
    (run / row_file.FOLDER / row_file.CLAIMS).write_text("".join(json.dumps(look) + "\n" for look in looks))
    (answer,) = in_record.answers([read(run)], None)
    assert answer.word == "failing"
    assert answer.sentence == "1 of the 2 claims that could be tested during training is broken."
    assert list(answer.tables[0].rows) == [
        ("Groups have one prompt and the stated size", "holds", "in 3 of 3 checks"),
        ("Advantages follow from rewards and settings", "broken", "ddof <b>, at step 11"),
    ]
    assert answer.text == ["Step 11: row 3 differs. Set ddof."]


def test_all_that_could_be_tested_holds() -> None:
    answer = in_record._section([{"step": 1, "rollouts": 8, "claims": {"groups": HOLDS}}])
    assert answer.word == "healthy"
    assert answer.sentence == "Nothing that could be tested while the run trained is broken: 1 claim holds."
    look = {"step": 1, "rollouts": 8, "claims": {"groups": {"status": "cannot tell", "in_part": True}}}
    part = in_record._section([look])
    assert part.word == "cannot tell"
    assert part.sentence.startswith("No claim could be tested in full during training; 1 was tested in part")
