"""What several families need.

Speeds asked for once (`speed_cache`), holdings that changed since the last decision
(`holdings_delta`), from wanted sizes to actions (`reconcile`), reasons and what waiting jobs wait
for, one policy beside another (`planes`) or inside its grants (`two_level`).
"""
