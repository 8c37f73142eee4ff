"""For those who build on Holdfast: the kit that every store passes, faults to inject, and a model to compare with.

`conformance` proves a backend or a whole store; `faults` fails at chosen calls; `walk` and `model` (which needs
hypothesis) drive a store at random beside a plain model. Nothing of this is loaded by `import holdfast`.
"""
