"""The fast engine: a heap of future events, and the physics that decide when they happen.

`engine` is the simulator, `attempts` what runs in it, `truth` the oracle of true durations.
`speeds` changes speeds by rescale protocols, by neighbours that slow each other, and for jobs that
share GPUs, which `tenancy` divides where a policy has given them terms. `hosted` lets processes
with a time of their own run beside it, such as the requests of services, as a fluid (`load`) or one
by one (`requests/`). `children` says what jobs that come late truly are, `reports` what trials on
curves report.
"""
