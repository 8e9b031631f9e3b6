"""Systems that learn while they schedule, by what they see of their own decisions."""
