"""Work that takes seconds, beside the pages: each piece in a process of its own that is nice and
bounded in time and memory.

`pool` starts and ends pieces of work and hears from them, `child` is what such a process runs,
`tasks` are the kinds of work.
"""
