"""The rule by which a stated number and a range are compared (studies/README.md; `ebb paper` has
the same in crates/ebb/src/paper/verdict.rs)."""

INSIDE = "inside the range"
OUTSIDE = "outside"
NOT_IDENTIFIED = "not identified by the baseline"
#: A range that is wider than this share of the stated number does not identify it. A narrower one
#: that holds a ratio of 1.12 or 0.9 does not hold 1, no effect; and the twin's watts of measured
#: servers are off by about as much, ± 6 %.
WIDTH = 0.1


def verdict(stated: float, half: float, low: float, high: float, bound: str | None = None) -> str:
    """Where a number, give or take `half`, is, seen from a range.

    Ratios are of what remains (0.15, not 85 % saved). A number that is a bound is inside where the
    whole range keeps it."""
    if bound:
        kept = [meets(stated, half, value, value, bound) for value in (low, high)]
        return INSIDE if all(kept) else NOT_IDENTIFIED if any(kept) else OUTSIDE
    if not meets(stated, half, low, high):
        return OUTSIDE
    return NOT_IDENTIFIED if high - low > WIDTH * abs(stated) else INSIDE


def meets(stated: float, half: float, low: float, high: float, bound: str | None = None) -> bool:
    """Whether the number, give or take `half`, or what its bound allows, and the range overlap."""
    return (bound == "least" or low <= stated + half) and (bound == "most" or high >= stated - half)
