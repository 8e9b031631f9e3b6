"""What runs over requests are measured by: a bound, and what comes, which no router knows."""
