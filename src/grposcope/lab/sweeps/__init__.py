"""Sweeps: the same training over a grid of settings and seeds, and the table that compares its cells.

`plan.read` makes a plan of a YAML file, `plan.of` of a mapping; `drive.sweep` runs it in processes of this machine
(`processes.LocalProcesses`) or on a Ray cluster (`on_ray.RayTasks`); `table.of_runs` compares the cells.
"""
