"""What is said of the texts of a run: a first line, what is paid, what changes, and which to read."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from grposcope.core import finding
from grposcope.core.answer import Answer, Table, Word
from grposcope.core.rollouts import Floats, Rollout
from grposcope.core.run import Run, labels
from grposcope.core.text import apart_shares, brief, capitalised, number, percent, visible
from grposcope.instruments.texts.marks import CLOSE, OPEN, marked
from grposcope.instruments.texts.question import NAME, QUESTION
from grposcope.maths.passage import Passage
from grposcope.signs.rollouts.claims.texts import WITNESS
from grposcope.signs.texts import exploits, foreign_turns, idle_tries, pairs, phrases, right_answers, sample, splits
from grposcope.signs.texts.exploits import Exploit
from grposcope.signs.texts.features import LOGARITHMS
from grposcope.signs.texts.habits import LEVEL, PaidHabit
from grposcope.signs.texts.pairs import TextPair
from grposcope.signs.texts.reading import FEW_PROMPTS, TextChange, TextReading, read
from grposcope.signs.texts.splits import HabitSplit

FIRST_LINE = 110
"""Characters of the first line."""

ON_PAGE, ON_PAGE_MOST = 64, 8000
"""Texts of a run from which the page has a section on them, and how many of them are read."""

Z95 = 1.96

_FEW, _NEARLY = 50, 0.9
"""Completions from which a score that is 0 on all is told, and the share of the prompts that is nearly all."""

_OPENED = re.compile(r"<(\w{2,20})>\s*$")
"""A tag that is opened at the end of a prompt."""

_ASK_ELSEWHERE = (
    "have the function look at the end of the prompt and the completion together, or not ask for the opening tag "
    "(TRL #6966, of its think_format_reward)"
)
"""What to do about a reward that asks for a tag which stands in the prompt."""

_AGAIN, _WORDS = 0.2, 16
"""Share of pairs of siblings that are one text, and words of a text, from which so much is no chance: a text of 16
words is drawn twice in a fifth of the pairs only where all its words together leave 1.6 nats or less."""

_ORDERED = 0.9
"""Share of groups whose texts repeat at one distance from which on they are copies."""

_COLDER = (
    "print the temperature, top-k and top-p in force where completions are drawn: what the generation_config.json of "
    "a model says may stand in place of the trainer's settings (TRL #5783); if they are those of the settings, the "
    "policy is that certain, and more rollouts per prompt teach no more"
)
"""What to do about siblings that are one text."""


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """What the texts of the runs do, an answer for each run with enough of them."""
    made = []
    for label, run in zip(labels(runs), runs, strict=True):
        rows = sample.recorded(run)
        if sum(map(sample.is_readable, rows)) >= ON_PAGE:
            texts = sample.of_rollouts(rows, most=ON_PAGE_MOST)
            reading = read(replace(texts, sampled=texts.sampled or len(run.rollouts) > sample.STEPS))
            said = with_facts(with_pairs(of_reading(reading), reading), rows)
            if len(runs) > 1:
                said = replace(said, name=f"{said.name}-{label}", question=f"{said.question} ({label})")
            made.append(said)
    return made


def of_reading(reading: TextReading) -> Answer:
    """What is said of a reading."""
    found = exploits.exploits(reading)
    shown = to_read(reading, found)
    first = found[0] if found else None
    beside = [] if first is not None else [*_unpaid_tags(reading), *_same_siblings(reading)]
    return Answer(
        NAME,
        QUESTION,
        word=_word(reading, found),
        sentence=beside[0][0] if beside else _first_line(reading, found),
        because=beside[0][1] if beside else first.because if first is not None else "",
        do=beside[0][2] if beside else _do(reading, first) if first is not None else "",
        text=[*_others(found), *(f"Also, {because}." for _, because, _ in beside[1:]), *reading.sample.notes],
        tables=[*_habits(reading), *_scores(reading), *_splits(reading), *_changes(reading)],
        missing=_missing(reading, found),
        document=_document(reading, found, shown),
    )


def with_facts(said: Answer, rows: Sequence[Rollout]) -> Answer:
    """The answer with what rollouts show without any test: right answers that are not paid, turns of the environment
    that the policy writes, a reward for trying nothing; the first of them is the answer's own sentence where no exploit
    is one."""
    every = right_answers.unpaid(rows), foreign_turns.written(rows), idle_tries.paid_more(rows)
    facts = [own for own in every if own is not None and own.fault not in _named(said)]
    if not facts:
        return said
    lines = [f"Also, {own.fault}: {own.because}." for own in facts]
    content = {**said.document, "facts": [finding.document(own) for own in facts]}
    if said.word in ("warning", "failing"):
        return replace(said, text=[*lines, *said.text], document=content)
    return replace(
        said, word="warning", sentence=f"{capitalised(facts[0].brief)}.", because=facts[0].because,
        do=facts[0].remedy, text=[*lines[1:], *said.text], document=content,
    )  # fmt: skip


def _named(said: Answer) -> set[str]:
    """Faults that the answer names already."""
    return {own["fault"] for own in said.document["exploits"] if own["status"] == "present"}


def with_pairs(said: Answer, reading: TextReading) -> Answer:
    """The answer with the pairs to read as a table, as pages have it."""
    return replace(said, tables=[*said.tables, *_pairs(to_read(reading, exploits.exploits(reading)))])


def _word(reading: TextReading, exploits: Sequence[Exploit]) -> Word:
    """“warning” where an exploit is present; “cannot tell” where nothing could be tested; else “told”."""
    if any(own.status == "present" for own in exploits):
        return "warning"
    testable = reading.live and reading.prompts >= FEW_PROMPTS and not reading.doubt
    return "told" if testable or exploits else "cannot tell"


def _first_line(reading: TextReading, exploits: Sequence[Exploit]) -> str:
    """The first line, at most FIRST_LINE characters: as much of the first finding as fits."""
    if exploits:
        return next(line for line in _lines(exploits[0], reading) if len(line) <= FIRST_LINE)
    size = f"{len(reading.sample):,} completions"
    if not reading.live:
        return f"All rewards of a group are equal: nothing in these texts is paid for ({size})."
    if reading.prompts < FEW_PROMPTS:
        of = f"{reading.prompts:,} prompt{'s' * (reading.prompts != 1)}"
        return f"Rewards differ in groups of only {of}: too few to tell a habit from an answer ({size})."
    if reading.doubt:
        return next(line for line in _doubted(reading, size) if len(line) <= FIRST_LINE)
    form = next((f" but what {habit.part} is given for" for habit in reading.habits if habit.part), "")
    line = f"No habit of the texts spread that pays without the prompt{form}"
    whole = f"{line}; {size}, {reading.live:,} live groups."
    return whole if len(whole) <= FIRST_LINE else f"{line}."


def _doubted(reading: TextReading, size: str) -> Iterator[str]:
    """First lines where it cannot be told that no habit spread, longer ones first; the last one always fits."""
    habit = reading.rose
    if not reading.sample.stepped:
        yield f"All of one step, so that what spreads cannot be seen ({size})."
    elif habit is None:
        yield f"Too few groups to tell that no paid habit spread ({size}, {reading.live:,} live groups)."
    else:
        if math.isfinite(habit.paid):
            paid = f"Texts that {phrases.having(habit)} are paid {brief(habit.paid)}, others {brief(habit.unpaid)}"
            yield f"{paid}; {phrases.moved(habit)}, which may be chance."
        yield f"A paid habit went {phrases.moved(habit)}, which may be chance ({size})."


def _lines(own: Exploit, reading: TextReading) -> Iterator[str]:
    """First lines of a finding, longer ones first; the last one always fits."""
    name = capitalised(own.fault)
    when = phrases.since(own.since)
    maybe = "Possible: " if own.status == "possible" else ""
    if own.habit is not None and own.habit.binary and math.isfinite(own.habit.paid):
        habit = own.habit
        against = f"are paid {brief(habit.paid)}, others {brief(habit.unpaid)}"
        moved = f"; {phrases.shares(habit)}{when}" if habit.spread is not None else ""
        truth = "" if habit.blind is None else f"; {phrases.truth(habit)}"
        say = f"texts that {phrases.having(habit)}"
        yield f"{capitalised(maybe + say)} {against}{moved}{truth}."
        yield f"{capitalised(maybe + say)} {against}{moved}."
        yield f"{capitalised(maybe + own.fault)}: such texts {against}{moved}."
    elif own.habit is not None:
        habit = own.habit
        yield f"{capitalised(maybe + phrases.paid(habit))}; {phrases.moved(habit)}."
    elif own.state is not None:
        clause = own.because.partition(";")[0].partition(", and they")[0]
        paid = "" if exploits.paid_without(own) else "; they are paid more"
        if own.fault != exploits.GIBBERISH:
            yield f"{clause}{when}{paid}."
        nothing = "; nothing pays for it" if exploits.paid_without(own) else ""
        yield f"{name}: {own.brief}{when}{nothing}."
        yield f"{name}: {own.brief}{when}."
    yield f"{capitalised(maybe + own.fault)}{when}."


def _do(reading: TextReading, own: Exploit) -> str:
    if own.fault == exploits.FINISHING:
        return "raise the limit of the length: what is learned is to finish in time, which is no exploit"
    if own.status == "possible":
        return "read the pairs: whether the grader should pay for this is not in the texts; a true score decides"
    if exploits.paid_without(own):
        return "read the pairs, and look at the update rather than the reward: nothing that was found pays for it"
    back = "start again" if own.since is None else f"go back to a checkpoint from before step {own.since.low:,}"
    return f"read the pairs, correct the grader so that this alone earns nothing, and {back}"


def _unpaid_tags(reading: TextReading) -> Iterator[tuple[str, str, str]]:
    """(first line, reason, what to do) for scores that are 0 on every text while the prompts open a tag that the texts
    close and do not open."""
    own = reading.sample
    opened = Counter(match[1] for prompt in own.prompts if (match := _OPENED.search(prompt)))
    if len(own) < _FEW or not opened:
        return
    tag, count = opened.most_common(1)[0]
    closes, opens = (float(np.mean([mark in text for text in own.texts])) for mark in (f"</{tag}>", f"<{tag}>"))
    if count < _NEARLY * len(own) or closes < 0.5 or opens > 1 - _NEARLY:
        return
    for name in own.unpaid:
        said = f"{visible(name, 40)} is 0 for all {len(own):,} completions"
        yield (
            f"{said}; the prompts end with <{tag}>.",
            f"{said}, while {percent(count / len(own))} of the prompts end with <{tag}> and {percent(closes)} of the "
            f"completions close it: a function that asks for <{tag}> in the completion does not find it there",
            _ASK_ELSEWHERE,
        )


def _same_siblings(reading: TextReading) -> Iterator[tuple[str, str, str]]:
    """(first line, reason, what to do) where siblings of the first quarter of the steps are often one long text."""
    own = reading.sample
    if not len(own) or np.median([len(text.split()) for text in own.texts]) < _WORDS:
        return
    last = np.quantile(np.unique(own.step), 0.25)
    groups: dict[int, list[str]] = {}
    for text, group, step in zip(own.texts, own.group, own.step, strict=True):
        if step <= last:
            groups.setdefault(int(group), []).append(text)
    pairs_of = sum(len(texts) * (len(texts) - 1) for texts in groups.values())
    same = sum(count * (count - 1) for texts in groups.values() for count in Counter(texts).values())
    if len(groups) < FEW_PROMPTS or not pairs_of or same < _AGAIN * pairs_of:
        return
    share = same / pairs_of
    if (apart := _at_one_distance(list(groups.values()))) is not None:
        yield (
            f"{percent(share)} of pairs of siblings are one text, {apart} places apart.",
            f"{percent(share)} of pairs of siblings are one text in the first quarter of the steps, and in nearly "
            f"every group each is the text that stands {apart} places before it: chance does not order siblings, so "
            "these are copies, as of sampling processes that have one seed",
            "give every sampling process its own seed; groups are smaller than they seem until then",
        )
        return
    yield (
        f"{percent(share)} of pairs of siblings are one text, in the first quarter of the steps.",
        f"{percent(share)} of pairs of siblings are one text in the first quarter of the steps, as where all its "
        f"tokens together leave {-math.log(share):.2g} nats: so certain is a policy at a low temperature, or one that "
        "was trained to a few answers",
        _COLDER,
    )


def _at_one_distance(groups: Sequence[Sequence[str]]) -> int | None:
    """The distance at which every text of a group repeats the one before it, in _ORDERED of the groups with two texts
    or more; None where there is none, or groups of that kind are few."""
    several = [texts for texts in groups if len(set(texts)) > 1]
    for apart in range(2, max(map(len, several), default=0) // 2 + 1):
        repeats = [texts[apart:] == texts[:-apart] and len(texts) >= 2 * apart for texts in several]
        if len(several) >= FEW_PROMPTS and sum(repeats) >= _ORDERED * len(several):
            return apart
    return None


def _others(exploits: Sequence[Exploit]) -> list[str]:
    return [f"{'Also' if own.status == 'present' else 'Possible'}, {own.fault}: {own.because}." for own in exploits[1:]]


def to_read(reading: TextReading, exploits: Sequence[Exploit]) -> tuple[TextPair, ...]:
    """The pairs to read: of the first finding, else of the first habit or change."""
    columns: list[Floats] = [own.column for own in exploits] or [habit.column for habit in reading.habits]
    columns += [change.column for change in reading.changes]
    return next((shown for column in columns if (shown := pairs.to_read(reading.sample, column))), ())


def _habits(reading: TextReading) -> list[Table]:
    if not reading.habits:
        return []
    rows = [
        (
            phrases.short(habit), _against(habit), _effect(habit), percent(habit.r2), habit.relation,
            phrases.moved(habit) or "—", "; ".join(habit.others) or "—",
        )
        for habit in reading.habits
    ]  # fmt: skip
    header = (
        "habit", "paid with / without", "effect", "of the differences", "relation", "first to last tenth of steps",
        "nearly the same",
    )  # fmt: skip
    caption = (
        "Mean over the groups that have both of the mean reward with and without; effect per text, or per unit of a "
        "measure (of a count, of its logarithm), ± half a 95% interval over prompts, and share of the reward "
        "differences, in those of the "
        f"{reading.live:,} live groups where it varies. Paid for sure: such texts get the best reward whatever else "
        "they say; needed: others get the lowest; is the reward: both. Of three shares, the second is of the highest "
        "tenth. A needed habit is benign if the true score goes with it. Each row after the first is among texts alike "
        f"in those above. {reading.tested:,} features were tested together at "
        f"{percent(LEVEL)}."
    )
    return [Table("What is paid", header, rows, caption)]


def _against(habit: PaidHabit) -> str:
    return f"{brief(habit.paid)} / {brief(habit.unpaid)}" if math.isfinite(habit.paid) else "—"


def _effect(habit: PaidHabit) -> str:
    return f"{number(habit.slope)} ± {number(Z95 * habit.se)}"


def _scores(reading: TextReading) -> list[Table]:
    """What other scores do with the first habit: which component pays for it, and whether the true score does."""
    if not reading.habits or not reading.habits[0].scores:
        return []
    habit = reading.habits[0]
    rows = [
        (visible(name, 60) + (" (true score)" if name == reading.sample.truth else ""),
         f"{number(score.slope)} ± {number(Z95 * score.se)}", number(score.z))
        for name, score in habit.scores.items()
    ]  # fmt: skip
    title = f"Other scores of {phrases.short(habit)}"
    return [Table(title, ("score", "effect", "z"), rows, "Inside the same groups; on the scale of each score.")]


def _splits(reading: TextReading) -> list[Table]:
    """The first habit by environment and by turn."""
    if not reading.habits:
        return []
    habit = reading.habits[0]
    tables = []
    for what, own in (("environment", splits.by_environment(reading.sample, habit)),
                      ("turn", splits.by_turn(reading.sample, habit))):  # fmt: skip
        rows = [
            (visible(each.name, 60), f"{each.texts:,}", _two(each.paid, each.unpaid), _moved(each, habit),
             phrases.since(each.since).strip() or "—")
            for each in own
        ]  # fmt: skip
        header = (what, "texts", "paid with / without", "first to last tenth of steps", "since")
        caption = "Read of the text and calls of that turn alone." if what == "turn" else ""
        tables += [Table(f"{capitalised(phrases.short(habit))}, by {what}", header, rows, caption)] if rows else []
    return tables


def _two(paid: float, unpaid: float) -> str:
    return f"{brief(paid)} / {brief(unpaid)}" if math.isfinite(paid) and math.isfinite(unpaid) else "—"


def _moved(own: HabitSplit, habit: PaidHabit) -> str:
    if not (math.isfinite(own.early) and math.isfinite(own.late)):
        return "—"
    if habit.binary:
        return apart_shares(own.early, own.late)
    return _counts(habit.feature, habit.counted(own.early), habit.counted(own.late))


def _changes(reading: TextReading) -> list[Table]:
    if not reading.changes:
        return []
    rows = [(change.feature, _levels(change), _when(change)) for change in reading.changes]
    caption = "The features that changed most, one name for what changes together; whole groups are the units."
    return [
        Table("What else changes over the steps", ("feature", "before → after", "since"), rows, caption, folded=True)
    ]


def _levels(change: TextChange) -> str:
    if change.binary:
        return apart_shares(change.before, change.after)
    return _counts(change.feature, change.before, change.after)


def _counts(feature: str, before: float, after: float) -> str:
    """How the mean of a measure went, in its own unit."""
    return f"{brief(before)} → {brief(after)}{' (geometric means)' * (feature in LOGARITHMS)}"


def _when(change: TextChange) -> str:
    if change.odd is not None:
        return f"step {change.odd:,} alone"
    return phrases.since(change.since).strip()


def _missing(reading: TextReading, exploits: Sequence[Exploit]) -> list[str]:
    missing = []
    own = reading.sample
    if not own.truth and exploits:
        missing.append(
            "Without a true score, an exploit and honest success look alike where one form is right: name one."
        )
    if own.trained:
        missing.append(f"{own.witness[0].upper()}{own.witness[1:]}: {WITNESS}.")
    if not reading.sample.stepped:
        missing.append("All rollouts are of one step, so what spreads and since when cannot be seen: write the step.")
    if reading.live == 0 and len(set(reading.sample.group.tolist())) == len(reading.sample):
        missing.append("No group has two completions, so nothing can be compared inside groups.")
    if reading.live and reading.prompts < FEW_PROMPTS and not exploits:
        missing.append(f"Fewer than {FEW_PROMPTS} prompts have different rewards: read more groups.")
    return missing


def _document(reading: TextReading, exploits: Sequence[Exploit], shown: Sequence[TextPair]) -> dict[str, Any]:
    """Everything for programs."""
    own = reading.sample
    return {
        "completions": len(own), "live_groups": reading.live, "prompts": reading.prompts, "features": reading.tested,
        "truth": own.truth or None, "notes": list(own.notes),
        "dependence_on_prompt": {"early": reading.dependence.early, "late": reading.dependence.late},
        "exploits": [
            {"fault": exploit.fault, "status": exploit.status, "because": exploit.because, "p": exploit.p,
             "since": _since(exploit.since)}
            for exploit in exploits
        ],
        "paid": [_habit(habit) for habit in reading.habits],
        "by_environment": _split_documents(splits.by_environment(own, habit) for habit in reading.habits[:1]),
        "by_turn": _split_documents(splits.by_turn(own, habit) for habit in reading.habits[:1]),
        "states": [
            {"state": state.name, "early": state.early, "late": state.late, "paid": state.paid, "others": state.other,
             "p": state.p, "since": _since(state.since)}
            for state in reading.states
        ],
        "changes": [
            {"feature": change.feature, "before": change.before, "after": change.after, "after_step": change.at,
             "odd_step": change.odd, "since": _since(change.since)}
            for change in reading.changes
        ],
        "to_read": [_pair(pair) for pair in shown],
    }  # fmt: skip


def _split_documents(habits: Iterable[Sequence[HabitSplit]]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "texts": each.texts, "paid": each.paid, "unpaid": each.unpaid, "early": each.early,
         "late": each.late, "since": _since(each.since)}
        for own in habits for each in own
    ]  # fmt: skip


def _pairs(shown: Sequence[TextPair]) -> list[Table]:
    """The pairs to read as a table of the page."""
    if not shown:
        return []
    rows = [
        (
            f"{visible(pair.prompt[-200:])} ({pair.how})",
            *(
                f"{marked(spans)} (reward {brief(reward)}{f', step {step:,}' if step else ''})"
                for spans, reward, step in zip((pair.without, pair.having), pair.rewards, pair.steps, strict=True)
            ),
        )
        for pair in shown
    ]
    caption = (
        f"{OPEN}What the other text lacks{CLOSE} is marked. Of the latest groups that have both, one of each prompt."
    )
    return [Table("Read these", ("prompt", "without", "with"), rows, caption)]


def _since(passage: Passage | None) -> dict[str, int] | None:
    return None if passage is None else {"step": passage.step, "low": passage.low, "high": passage.high}


def _habit(habit: PaidHabit) -> dict[str, Any]:
    """A habit without its column."""
    plain = {
        name: getattr(habit, name)
        for name in ("feature", "kind", "more", "binary", "relation", "paid", "unpaid", "having", "lacking", "groups",
                     "slope", "se", "z", "p", "r2", "early", "late", "spread", "blind", "peak")
    }  # fmt: skip
    plain |= {name: habit.counted(plain[name]) for name in ("early", "late")}
    scores = {name: asdict(score) for name, score in habit.scores.items()}
    return {**plain, "since": _since(habit.since), "others": list(habit.others), "scores": scores}


def _pair(pair: TextPair) -> dict[str, Any]:
    both = zip(("without", "having"), pair.steps, pair.rewards, (pair.without, pair.having), strict=True)
    texts = {
        name: {"step": step, "reward": reward, "spans": [[span.text, span.differs] for span in spans]}
        for name, step, reward, spans in both
    }
    return {"prompt": pair.prompt, "how": pair.how, **texts}
