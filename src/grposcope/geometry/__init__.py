"""What a gradient is made of, from one backward pass.

probe        the whole instrument: `probe.probe(model, rollouts, recipe)`
factors      every rollout's score, layer by layer; gram: their inner products
capture      how layers report what they see; recompute: activations made again to save memory
beside       work on layers in other threads while the backward pass goes on
spectrum     singular values and every rank by name; trajectory: of gradients over steps
settings     which gradient: recipes, group sizes, controls; passes: what is kept of each layer
classes      successes against failures; baseline: the best constant to subtract
sparsity     groups, parameters and tokens that count for little; tokens: where the credit lies
memory       what a pass will take; step: a few numbers while training; summary: a probe as plain values
"""
