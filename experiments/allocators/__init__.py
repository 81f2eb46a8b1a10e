"""Ways to spend the rollouts of a batch that were not seen to save any, kept with their experiments.

`theory` is the draw of least error, `norms` what it assumes of gradients, `policies` make batches of it and of two
stages, `drawing` drives them in a run, `forecasts` and `scores` say how good forecasts of success rates are, and
`check` measures what the draw saves on gradients that it was not made from. What came out: experiments/allocation.md.
"""
