"""Recipes by which services and all other jobs share one cluster, each side under a recipe of its
own: `--sharing` of `ganger simulate`."""
