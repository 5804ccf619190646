"""Random programs, run eager and compiled, must not differ."""

import generator
import pytest


@pytest.mark.filterwarnings("ignore")
def test_random_programs() -> None:
    tally = generator.Tally()
    assert not list(generator.search(1, 500, tally))
    assert tally.programs == len(tally.agreed) >= 500
    assert tally.hits >= tally.programs // 2, f"hardly anything was served from records: {tally.reasons}"
    assert tally.unchanged_hits >= 0.75 * tally.unchanged, f"{tally.unchanged_hits} hits of {tally.unchanged}"
    assert tally.in_graphs >= 0.75 * tally.operators, f"{tally.in_graphs} of {tally.operators} operators in graphs"
