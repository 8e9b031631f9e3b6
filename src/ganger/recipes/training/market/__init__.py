"""Systems that let jobs in by what they pay and cost."""
