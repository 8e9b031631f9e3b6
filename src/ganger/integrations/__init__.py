"""Searches from Python programs: studies of Optuna, scikit-learn's estimators. Each file needs its
own library only when it is imported."""
