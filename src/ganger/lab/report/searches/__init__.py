"""The report of searches for hyper-parameters, simulated or live, as one HTML file."""
