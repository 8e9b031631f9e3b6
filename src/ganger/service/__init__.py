"""The daemon: owns a kernel and an engine, keeps the journal, answers over HTTP. Linux only.

`http/`: connections and endpoints; `jobs/`: from a request to a job, its rights, what holds it;
`durable/`: the journal, recovery, backups, trials on a copy; `notices/`: messages; `reports/`:
explain, usage, metrics, doctor. Begin with docs/live-quickstart.md.
"""
