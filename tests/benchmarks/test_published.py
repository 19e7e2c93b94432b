from __future__ import annotations

import pytest

from posfeat.benchmarks.published import SPLITS, TABLE1_DIFFERS, published_methods, read_table


def test_twelve_methods_in_three_panels() -> None:
    methods = published_methods()
    assert len(methods) == 12
    assert methods[-1].name == "PoSFeat"
    assert (methods[-1].keypoints, methods[-1].matches) == (8192, 4275.3)
    assert all(len(method.mma[split]) == 10 for method in methods for split in SPLITS)


@pytest.mark.parametrize("method", published_methods(), ids=lambda method: method.name)
@pytest.mark.parametrize("split", SPLITS)
def test_table_1_follows_from_the_curves_but_for_the_noted_entries(method, split) -> None:
    computed = method.mma_score(split)
    if (method.name, split) in TABLE1_DIFFERS:
        printed, noted = TABLE1_DIFFERS[method.name, split]
        assert method.table1[split] == printed
        assert round(computed, 4) == noted
        assert abs(computed - printed) > 0.001
    else:
        assert round(computed, 3) == method.table1[split]


def test_rounding_twice_makes_a_third_entry_differ() -> None:
    differ = {
        (method.name, split)
        for method in published_methods()
        for split in SPLITS
        if round(round(method.mma_score(split), 4), 3) != method.table1[split]
    }
    assert differ == {*TABLE1_DIFFERS, ("DISK", "overall")}


def test_no_other_entry_is_noted_than_those_of_the_table() -> None:
    entries = {(method.name, split) for method in published_methods() for split in SPLITS}
    assert set(TABLE1_DIFFERS) <= entries


def test_the_other_published_tables_are_whole() -> None:
    assert {row["method"] for row in read_table("table2_aachen")} >= {"SuperPoint", "PoSFeat", "LoFTR"}
    assert sum(row["method"] == "PoSFeat" for row in read_table("table3_eth")) == 4
    assert len(read_table("table4_ablation")) == 9
    assert {method.name for method in published_methods()} <= {row["method"] for row in read_table("hpatches_counts")}
