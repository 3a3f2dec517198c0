"""`ebb-lab fit`: free parameters fitted to a study's baseline, its policy's results predicted.

What a text or a measurement (`measured`) leaves open is declared with a range (`declaration`),
written into what `ebb sim` reads (`variants`), and searched for the region, not the point, where
all baseline rows come out within their uncertainty (`region`). Over samples of that region the
policy's rows are predicted and judged (`predicting`); `study` runs it all, `telling` and `outcome`
say what came of it.
"""
