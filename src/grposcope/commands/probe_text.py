"""What `grposcope probe` prints for a person."""

from __future__ import annotations

from typing import Any

from grposcope.geometry import summary
from grposcope.geometry.probe import Probe


def text(found: Probe, content: dict[str, Any]) -> str:
    """What a person reads first."""
    dead, two, base, credit = (content[k] for k in ("groups", "two_classes", "baseline", "credit"))
    parameter, token = content["parameter_sparsity"], content["token_sparsity"]
    matrices = sum(bool(layer.spectra) for layer in found.layers)
    depth = "  ".join(f"{d}: {v:.2f}" for d, v in summary.by_depth(found).items())

    def pm(one: dict[str, Any]) -> str:
        note = f" ({one['flag']})" if one["flag"] else ""
        return f"{one['value']:.3g} ± {one['se']:.2g}{note}"

    lines = [
        f"{content['prompts']} prompts × {content['group']} rollouts of {content['model']} on {content['task']}: "
        f"solved {content['solved']:.3f}, {content['tokens']} tokens, {content['truncated']:.0%} cut short",
        f"self-check: the layers' gradients differ from autograd's by {found.error:.1e}"
        + (f"; not measured: {', '.join(found.left_out)}" if found.left_out else ""),
        "",
        f"ranks of the gradients of {matrices} matrices, their mean; stable rank of the rollouts and of the tokens",
        summary.table(found),
        f"stable rank by block  {depth}",
        "",
        f"two classes: the class means hold {pm(two['plain'])} of each group's gradient "
        f"({pm(two['reduced'])} with the recipe's own weighting of rollouts)",
        f"dead groups: {pm(dead['dead'])}; {dead['dead_if_alike']:.3g} if all prompts were equally hard",
        f"credit: {credit['shared']:.0%} of it on text that rollouts share, {credit['common']:.0%} on text common to "
        f"the group; {credit['cancelled']:.0%} cancels",
        f"tokens: Gini {token['gini']:.2f}, the top 20 % hold {token['top_20']:.0%} of the squared score norms",
    ]
    if parameter:
        lines.append(
            f"parameters: Gini {parameter['gini']['value']:.2f}, Hoyer {parameter['hoyer']['value']:.2f}; in "
            f"bfloat16 a step changes {parameter['visible_sgd']['value']:.2%} of the weights by SGD, "
            f"{parameter['visible_adam']['value']:.2%} by Adam's first"
        )
    lines.append(f"baseline: {base['verdict']}")
    if base["optimal"]["value"] == base["optimal"]["value"]:  # not NaN
        lines += [
            f"          group mean {pm(base['mean'])}, best constant {pm(base['optimal'])}",
            f"          excess variance over the best: mean {pm(base['excess_mean'])}, none {pm(base['excess_none'])}",
        ]
    lines += [f"skipped {name}: {why}" for name, why in found.skipped.items()]
    if not found.complete:
        lines.append(f"interrupted: {len(found.layers)} parameters are measured, the others are missing")
    return "\n".join(lines)
