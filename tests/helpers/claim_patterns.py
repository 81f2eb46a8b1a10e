"""The patterns of the claims on a screen of `diagnose`, each with its check, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Sequence

import claims_of_rules as rules
from claims import NAME, NUMBER, OF_OUTCOME, SINCE, Check, V, any_of, value_of
from claims_of_causes import OF_CAUSES
from claims_of_first_rows import OF_FIRST_ROWS
from claims_of_kinds import OF_KINDS
from claims_of_ladder import OF_LADDER
from claims_of_shapes import OF_SHAPES

K, N = r"(?P<k>\d+(?:,\d{3})*)", r"(?P<n>\d+(?:,\d{3})*)"
ROWS = r"(?:rows?|steps?)"
STEP = r"\d+(?:,\d{3})*"
WHAT = r"(?P<name>(?:the |task |its )?reward(?: after its KL penalty)?|(?:held-out|component) \S+)"

CLAIMS: Sequence[tuple[str, Check]] = (
    *OF_SHAPES,
    *OF_KINDS,
    *OF_FIRST_ROWS,
    *OF_LADDER,
    *OF_CAUSES,
    (rf"[A-Z|][^.;:]*? went from (?P<a>{V}) to (?P<b>{V})(?: nats)?(?= \(it|;)", rules.some_column),
    (rf"at (?P<v>{V}) nats per token, and numerics", rules.some_ratio_early),
    (
        rf"at (?P<v>{V}), and numerics",
        lambda raw, m: any_of(m["v"], [raw.first(key) for key in raw.columns if raw.values(key)], 2),
    ),
    (
        rf"(?P<name>{NAME}) is (?P<v>{V}) nats after {N} steps that had a gradient: the learning rate is (?P<rate>{V})"
        " at most",
        rules.hardly_moved,
    ),
    (rf"largest learning rate: (?P<rate>{V})", rules.largest_rate),
    (rf"although (?P<share>{V}) of completions end before the limit", rules.ended),
    (rf"(?P<name>component \S+) fell from (?P<a>{V}) in the first rows to (?P<b>{V})(?P<around>)", rules.fell_at_once),
    (rf"(?P<name>{NAME}), first rows: (?P<v>{V})", rules.first_rows),
    (rf"mean (?:ρ|\|log ρ\|) (?P<v>{V})", rules.some_ratio),
    (rf"(?P<name>{NAME}) stays at (?P<v>{V}) versions", rules.stays),
    (r"\d+ rows with \w+ = \w+ are evaluations", rules.reading),
    (
        rf"evaluations at \d+ steps after the last row of training \(({STEP})\) were left out",
        rules.fits(lambda raw, text: int(value_of(text)) == raw.steps[-1]),
    ),
    (r"treated as not measured: (?P<all>.*)\.$", rules.constant),
    (r"at step (?P<since>\d+(?:,\d{3})*) \(held-out is measured up to there\)", rules.a_step),
    *OF_OUTCOME,
    (rf"the reward is exactly (?P<v>{NUMBER}) in the last {K} of {N} {ROWS}", rules.same_at_end),
    (
        rf"(?:the reward is|every rollout has a reward of) exactly (?P<v>{NUMBER}) in all (?P<k>){N} {ROWS}",
        rules.same_at_end,
    ),
    (rf"rows up to the end with the same \S+: {NUMBER}", lambda raw, match: ""),
    (rf"every completion is cut at the token limit in (?:the )?(?P<how>all|last) {N} {ROWS}", rules.all_cut),
    (
        rf"rewards within every group are equal in all {N} {ROWS}",
        lambda raw, m: rules.count(raw, "dead_fraction", m["n"]),
    ),
    (
        rf"(?:(?P<name>{NAME}) is|(?P<names>{NAME}(?: and {NAME})+) are) (?P<near>near )?0 in"
        rf" (?:(?P<all>all)|{K} of) {N} {ROWS}",
        rules.zero_in,
    ),
    (rf"rows in which (?P<name>[\w ]+) is 0: {K}(?P<n>)", rules.zero_rows),
    (rf"the learning rate is 0 on all {N} rows", lambda raw, m: rules.count(raw, "lr", m["n"])),
    (rf"the gradient is exactly 0 on all {N} rows", lambda raw, m: rules.count(raw, "grad_norm", m["n"])),
    (
        rf"(?P<name>{NAME}) is exactly 0 in all (?P<k>{NUMBER}) rows: no step changes the policy,"
        " or it is not computed",
        lambda raw, m: rules.zero_rows(raw, m) or rules.count(raw, "kl", m["k"]),
    ),
    (rf"(?P<name>{NAME}) is (?P<what>not finite|null) in {K} of {N} {ROWS}", rules.not_finite),
    (rf"(?P<name>{NAME}) is (?P<what>not finite|null) at step (?P<at>{STEP})", rules.lost_at),
    (
        rf"(?P<name>{NAME}) fell from (?P<a>{V}) to (?P<b>{V}) on the {N} rows that have it",
        rules.fell_on_few_rows,
    ),
    (
        r"rows of (?P<n>\d+) tasks in turn",
        lambda raw, m: "" if len(raw.scopes) == int(m["n"]) else f"{len(raw.scopes)} tasks",
    ),
    (rf"with others of the same step \(step (?P<since>{STEP})\)", rules.a_step),
    (r"[Ii]n one row alone: (?P<all>.*)\.$", rules.in_one_row),
    (r"(?P<all>.*): such numbers are not measured on new completions at every step", rules.not_measured),
    (rf"rows in which (?P<name>{NAME}) is (?P<what>not finite|null): {K}", rules.not_finite),
    (rf"(?P<name>{NAME}) is (?P<what>not finite|null) on {K} rows?\b", rules.not_finite),
    (
        rf"(?P<share>{V}) of groups have equal rewards in the last fifth, and teach nothing(?:"
        rf" \((?P<first>{V}) at first\))?",
        rules.dead,
    ),
    (
        rf"(?:(?P<least>at least )?(?P<share>{V}) of|(?P<share2>all)) groups have equal rewards"
        rf"(?:, at a reward of (?P<reward>{NUMBER})(?: out of (?P<top>{NUMBER}))?)?(?:; at the start (?P<first>{V}))?",
        rules.dead,
    ),
    (
        rf"at most (?P<share>{V}) of rollouts can still improve, at a reward of"
        rf" (?P<reward>{NUMBER})(?: out of (?P<top>{NUMBER}))?",
        rules.left,
    ),
    (rf"groups with equal rewards (?P<first>{V}) → (?P<share>{V})", rules.dead),
    (r"so at least (?P<a>\d+)% of groups are all right, and at least (?P<b>\d+)% all wrong", rules.right_and_wrong),
    (
        rf"(?P<shares>{V}(?: → {V})?) of {ROWS} have no gradient to speak of: {K} of {N} over the whole run",
        rules.empty_steps,
    ),
    (rf"late steps without a gradient, last 20%: (?P<v>{V})", rules.late_empty),
    (rf"(?P<share>{V}) of completions are cut at the token limit", rules.cut),
    (rf"(?P<share>{V}) of completions are cut(?! at)", rules.cut),
    (rf"(?:(?P<first>{V}) → )?(?P<share>{V}) of completions cut{SINCE}", rules.cut),
    (rf"(?:(?P<first>{V}) → )?(?P<share>{V}) of completions run to the (?:token )?limit{SINCE}", rules.cut),
    (rf"those cut at the limit (?P<first>{V}) → (?P<share>{V})", rules.cut),
    (
        rf"(?P<share>{V}) of completions are counted as cut, which would all be as long as the longest of their batch "
        rf"\((?P<longest>{V}) tokens\), but the mean is (?P<mean>{V})",
        rules.counted_as_cut,
    ),
    (rf"(?P<share>{V}) counted as cut, but most of them ended", rules.cut),
    (rf"rows whose mean \S+ is too short for cut ones: {N}", rules.too_short),
    (
        rf"rewards within every group are equal in {N} of (?P<k>{NUMBER}) {ROWS}, while (?P<key>\S+) is "
        rf"(?P<size>{V}) over the batch",
        rules.equal_within,
    ),
    (rf"median spread over the batch: (?P<size>{V})", rules.spread_of_any),
    (rf"rewards differ by prompt \((?P<key>\S+) (?P<size>{V})\), not within", rules.spread_of_key),
    (rf"completions went from (?P<a>{V}) to (?P<b>{V}) tokens", lambda raw, m: rules.went_of(raw, "length", m)),
    (
        rf"the entropy went from (?P<a>{V})(?: in the first of \d+ (?:steps|rows))? to (?P<b>{V}) nats",
        lambda raw, m: rules.went_of(raw, "entropy", m),
    ),
    (
        rf"the KL to the starting policy went from (?P<a>{V}) to (?P<b>{V}) nats",
        lambda raw, m: rules.went_of(raw, "kl", m),
    ),
    (rf"the gradient norm grew from (?P<a>{V}) to (?P<b>{V})", lambda raw, m: rules.went_of(raw, "grad_norm", m)),
    (
        rf"the KL to the starting policy reaches (?P<v>{V}) nats per token on {K} rows?, first at step"
        rf" (?P<since>{STEP});"
        rf" its median is (?P<median>{V})",
        rules.exploded,
    ),
    (rf"largest (?P<name>kl\w*): (?P<v>{V})", rules.exploded),
    (rf"(?P<name>{NAME}) up to (?P<v>{V}) in {K} of {N} {ROWS}", rules.exploded),
    (rf"(?P<share>{V}) of tokens are clipped", lambda raw, m: rules.late_share(raw, "clip_fraction", m["share"])),
    (rf"clip fraction, last 20%: (?P<share>{V})", lambda raw, m: rules.late_share(raw, "clip_fraction", m["share"])),
    (rf"the gradient norm has {K} spikes, the largest (?P<v>{V}) ×", rules.spiked),
    (rf"{K} spikes in (?P<name>{NAME}), up to (?P<v>{V}) × its median", rules.spiked),
    (rf"largest gradient norm over its running median: (?P<v>{V})", rules.spiked),
    (rf"spikes: {K}", lambda raw, m: ""),
    (rf"grad_norm, last 20% over first 15%: (?P<v>{V})", rules.ratio_of_norms),
    (rf"(?P<name>{NAME}), last 20% over first 15%: (?P<v>{V}) \(counts from 30 ×\)", rules.times_farther),
    (rf"the reward swings with a period of (?P<p>{V}) steps and an amplitude of (?P<v>{V})", rules.swung),
    (rf"reward swings by ± (?P<v>{V}) every (?P<p>{V}) steps", rules.swung),
    (rf"period in steps: (?P<p>{V}); amplitude at the end: (?P<v>{V})", rules.swung),
    (
        rf"the reward changed by (?P<v>{V}) at most, less than (?P<limit>{V}), over (?P<n>{STEP}) steps",
        rules.changed,
    ),
    (rf"largest change of \S+ over a fifth of the run: (?P<v>{V})", rules.changed),
    (rf"(?P<name>held-out \S+), (?P<which>best|at the end): (?P<v>{V})", rules.of_score),
    (
        rf"{WHAT} (?:rose|fell)(?: only)? from (?P<a>{V})(?: \(around step (?P<around>{STEP})\))? to (?P<b>{V})",
        rules.fell,
    ),
    (rf"{WHAT} stayed at (?P<b>{V})(?P<a>)(?P<around>)", rules.fell),
    (rf"dead_fraction, lower bound, last 20%: (?P<v>{V})", rules.at_least_dead),
    (
        rf"(?P<name>{NAME}), (?P<part>first 15%|last 20%|first half|last tenth|every row)(?: \([a-z"
        rf" ]+\))?: (?P<v>{V})(?:(?: ± \S+)? \(limit (?P<limit>-?\d+\.?\d*)\))?",
        rules.signed,
    ),
    (r"Parts of the reward: (?P<all>.*)\.", rules.parts),
    (rf"(?P<name>{NAME}) (?P<a>{V}) → (?P<b>{V})(?: tokens)?{SINCE}", rules.went),
    (r"(?:since|before|after|at|around|by) step (?P<since>\d+(?:,\d{3})*)", rules.a_step),
    (r"each row is the mean over (\d+) steps", rules.fits(lambda raw, text: int(text) in rules.gaps(raw))),
    (
        r"restarted (?:once|\d+ times), first in line \d+(?:,\d{3})* \(step (\d+(?:,\d{3})*) after"
        r" \d+(?:,\d{3})*\): the last attempt of every step "
        r"is used, \d+(?:,\d{3})* of \d+(?:,\d{3})* rows",
        rules.fits(lambda raw, text: int(value_of(text)) in raw.steps),
    ),
    (
        r"\d+(?:,\d{3})* (?:rows? (?:was|were) joined|lines are cut off[^;]*;|values that stood"
        r" last|evaluations are several)",
        rules.reading,
    ),
    (r"values of (\d+) keys? (?:was|were) copied", rules.reading),
    (
        r"(?i)only (\d+(?:,\d{3})*) rows? of (?:\w+ )+logged",
        rules.fits(lambda raw, text: int(value_of(text)) <= len(raw.steps)),
    ),
    (
        r"(?i)only (\d+) evaluations? ",
        rules.fits(lambda raw, text: any(int(text) == len(raw.values(k)) for k in raw.scored.values())),
    ),
    (r"· (\d+(?:,\d{3})*) rows$", rules.fits(lambda raw, text: int(value_of(text)) == len(raw.steps))),
)
"""Pattern -> check, tried in this order."""
