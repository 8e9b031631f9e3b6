"""What may be believed about jobs: oracles, fits and models. Pure, seeded, single-threaded.

`--knows` chooses the oracle: truth, noisy, history (boosted), measured, rolling, group, losses,
estimate (as users state it) or nothing. History and lifetimes, learning curves, forecasts of load
and the goodput model stand here too. `measured` fits curves to what jobs report as `Measured` (step
time, batch size, gradient noise), `convergence` fits run times to losses and accuracies that come
as `Evaluated`.
"""
