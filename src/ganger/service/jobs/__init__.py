"""From a request to a job: checked, allowed, launched, held."""
