"""The front of a service: one address for all of its replicas.

It takes requests over HTTP and passes each on to one replica, whatever server that is: requests and
answers are not read, only carried. `balance` says which replica, and which are left out; `upstream`
speaks with one; `proxy` joins both; `rollout` moves traffic from a version to the next;
`process` is the front as a process of the user's own, and `link` how it is asked.
"""
