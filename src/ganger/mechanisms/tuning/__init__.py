"""Which trials of a search go on, and how far.

In `halving` and `brackets` all wait for the last of a rung; in `racing` each is judged when it
comes to one, by the rules of `asynchronous`. `limits` keeps deadline and budget over any recipe,
`timing` knows how long trials take to begin, `trials` is what these share; `searching/` proposes
configurations.
"""
