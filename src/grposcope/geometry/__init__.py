"""What a gradient is made of, from one backward pass.

probe        the whole instrument: `probe.probe(model, rollouts, recipe)`
factors      every rollout's score, layer by layer; gram: their inner products
spectrum     singular values and every rank by name; trajectory: of gradients over steps
settings     which gradient: recipes, group sizes, controls; passes: what is kept of each layer
classes      successes against failures; baseline: the best constant to subtract
sparsity     groups, parameters and tokens that count for little; tokens: where the credit lies
memory       what a pass will take
"""
