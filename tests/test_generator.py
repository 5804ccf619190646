"""Random programs, run eager and compiled, must not differ."""

import generator
import pytest
from hypothesis import HealthCheck, given, settings


@pytest.mark.filterwarnings("ignore")
def test_random_programs() -> None:
    tally = generator.Tally()

    @settings(max_examples=250, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(generator.programs())
    def agrees(text: str) -> None:
        found = generator.differs(text, tally)
        assert found is None, f"{text}\n{found}"

    agrees()
    assert tally.programs >= 100
    assert tally.hits >= tally.programs // 2, f"hardly anything was served from records: {tally.reasons}"
    assert tally.unchanged_hits >= 0.75 * tally.unchanged, f"{tally.unchanged_hits} hits of {tally.unchanged}"
    assert tally.in_graphs >= 0.75 * tally.operators, f"{tally.in_graphs} of {tally.operators} operators in graphs"
