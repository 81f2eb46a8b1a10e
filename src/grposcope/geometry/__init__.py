"""Composition of a gradient, from one backward pass.

probe          the whole instrument: `probe.probe(model, rollouts, recipe)`
record         a probe as it is written to a folder
statistics     further statistics of a probe, one function each, registered in one line
per_step       a cheap probe as a row of numbers, while training

Science, pure functions of arrays:
score          the per-rollout gradients of one parameter, kept as factors; gram: their inner products
spectrum       singular values and every rank by name; trajectory: of the gradients of successive steps
logits         log π and the score e_y − π of every token
weightings     which gradient: recipes, group sizes, controls
class_means    successes against failures; baseline: the best constant to subtract
curvature      the restoring force along a direction of the weights
sparsity       tokens and parameters that count for little; token_credit: which tokens carry the gradient

Machinery, behind `backward.attach(model).stream(rollouts, visit)`:
backward       one pass that gives every parameter's scores, checked against autograd
hooks          how layers report their factors; checkpointing: activations recomputed to save memory
background     parameters processed in other threads while the pass goes on
ranks          how several processes share a probe; `engines.distributed` does it with torch.distributed
layers         what a probe keeps of each parameter
"""
