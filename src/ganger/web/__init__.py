"""The pages: the cluster, the queue and every job in a browser. A process of its own, which is a
client of the daemon's API as the command line is; nothing of the daemon knows of it.

`door` decides which requests come in, `sessions` holds links and sessions, `live` sees changes,
`backend` asks the daemon, `expected` looks ahead for the list, `background/` works in processes of
its own, `shown/` words and draws, `pages/` answers, `templates/` and `static/` are what browsers
get.
"""
