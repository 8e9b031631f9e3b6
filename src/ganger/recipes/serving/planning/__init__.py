"""Systems that plan how many replicas of what services have, by cost."""
