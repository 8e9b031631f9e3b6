"""Several jobs on one GPU.

Parts of a GPU, groups of jobs that share GPUs (`grouping`), jobs beside others by a prediction
(`packing`), guaranteed and opportunistic jobs (`two_classes`), iterations in turn (`lanes`), turns
of a quantum (`time_slices`), parts of GPUs beside elastic gangs (`parts_first`).
"""
