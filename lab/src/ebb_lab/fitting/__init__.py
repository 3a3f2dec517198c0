"""`ebb-lab fit`: free parameters fitted to a study's baseline, its policy's results predicted.

What a text or a measurement (`measured`) leaves open is declared with a range (`declaration`),
written into what `ebb sim` reads (`variants`), and estimated from the baseline's rows: not a point
but a posterior (`posterior`), with splines between the simulated points (`emulator`). Over draws of
it the policy's rows are predicted (`predicting`) and judged by one rule (`verdicts`); `study` runs
it all, `telling` and `outcome` say what came of it.
"""
