"""Parts of a run: what decides how it goes, what a policy knows in it, and what is noted of it."""
