"""Experiments: recipe x trace x seed, their metrics, and reports on them.

Runs are in `simulation` and `simulating/`; what they cost in energy, carbon and money in
`billing/`, a meter that sits in the journal's seat. `ahead/` looks ahead and explains, `recommend/`
recommends a recipe, `live/` runs jobs beside their simulation, `serving/` runs routers over
requests (`serving/windows/`: long logs by windows, from a table of runs), `tuning/` searches on
curves. `report/` draws, `lessons/` teach, `docs/` makes pages from the code.
"""
