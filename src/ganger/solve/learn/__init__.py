"""Small policies that are learned: nets, and the ways to teach them, in numpy.

The same seed gives the same weights on one machine with the same libraries.
"""
