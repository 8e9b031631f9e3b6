"""Schedulers of training jobs.

A file holds a family whose recipes need shared mechanisms only. A folder, with `recipes.py` in it,
holds one where some have their own: `gavel/`, `fairness/` (themis, astraea, gandiva_fair),
`goodput/` (pollux, sia), `placement/` (hived, spin, topology) and others. `registry` and
`parameters` stand above.
"""
