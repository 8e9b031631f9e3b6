"""Formats in and out, and synthetic generators. What comes out is always a `Trace`.

`readers/` has a file for each trace format, `measured/` speeds from files; building, transforms,
statistics and generators stand beside them. `requests/`: requests to services as streams of chunks,
from logs, counts and generators (docs/requests.md); `models/`: what models take
(docs/models-file.md); `scenario/`: services, fleets and recipes in one file
(docs/scenario-file.md); `experiment/`: a search in one file, and `curves/`: what its trials report
(docs/tuning.md).
"""
