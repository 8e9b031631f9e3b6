"""Division of time between jobs, by objective.

Each job gets a fraction of the time on each GPU type, with a certificate: a feasible answer and a
proved bound. `prices` solves large problems, HiGHS small ones. Recipes reach it through
`mechanisms/rounds/program`, users through `ganger allocate`.
"""
