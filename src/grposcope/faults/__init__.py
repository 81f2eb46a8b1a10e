"""What goes wrong in training with groups: one file per fault, in families; the file's docstring is the fault's page.

`catalogue` finds the files; `judge` weighs what their tests saw together.
"""
