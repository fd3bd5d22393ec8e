"""What is kept next: the published rules, and bounds that hold for any growth."""

from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.checkpoint.checkpoint_settings import RowSelection
from shunter.engine.checkpoint.generations import Content
from shunter.extensions.incremental_checkpoints.touched import TouchedShares, next_contents


def contents(policy: RowSelection, since_last: list[float], since_full: list[float]) -> list[Content]:
    """What each checkpoint after a full one holds; the growth begins anew after a full one."""
    found: list[Content] = []
    history: list[float] = []
    age = 0
    for _ in since_last:
        last, full = since_last[age], since_full[age]
        (content,) = next_contents(policy, [TouchedShares(parts=history, since_last=last, since_full=full)])
        found.append(content)
        if content == "full":
            history, age = [], 0
            continue
        history = [
            *([] if policy == "auto" and content == "since_full" else history),
            full if content == "since_full" else last,
        ]
        age += 1
    return found


GROWTH = [0.26, 0.40, 0.50, 0.58, 0.64, 0.69, 0.73, 0.77, 0.80, 0.83, 0.85, 0.87]


def test_the_three_published_policies() -> None:
    each = [0.26] * len(GROWTH)
    assert set(contents("full", each, GROWTH)) == {"full"}
    assert set(contents("one-shot", each, GROWTH)) == {"since_full"}
    assert set(contents("consecutive", each, GROWTH)) == {"since_last"}
    # 1 + .26 + .40 > 3 * .50, but 1 + .26 + .40 + .50 <= 4 * .58.
    intermittent = contents("intermittent", each, GROWTH)
    assert intermittent[:5] == ["since_full"] * 3 + ["full", "since_full"]


def test_auto_writes_small_parts_until_they_are_as_much_as_all_rows() -> None:
    assert contents("auto", [0.26] * 12, GROWTH)[:5] == ["since_full"] + ["since_last"] * 2 + ["full", "since_full"]


def test_auto_keeps_one_part_where_intervals_touch_the_same_rows() -> None:
    assert set(contents("auto", [0.1] * 50, [0.105] * 50)) == {"since_full"}


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=40))
def test_auto_never_keeps_more_than_twice_all_rows(shares: list[float]) -> None:
    kept = 0.0
    grown = 0.0
    for share in shares:
        grown = max(share, min(grown + share / 2, 1.0))
        growth = TouchedShares(parts=[kept] if kept else [], since_last=share, since_full=grown)
        (content,) = next_contents("auto", [growth])
        kept = {"full": 0.0, "since_full": grown, "since_last": kept + share}[content]
        if content == "full":
            grown = 0.0
        assert kept <= 1.0


@given(st.lists(st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4), min_size=1, max_size=60))
def test_ranges_begin_anew_in_turn_and_keep_half_as_much_again_at_most(intervals: list[list[float]]) -> None:
    parts: list[list[float]] = [[] for _ in range(4)]
    grown = [0.0] * 4
    for shares in intervals:
        grown = [min(max(one, share, (one + share) * 0.9), 1.0) for one, share in zip(grown, shares, strict=True)]
        growth = [
            TouchedShares(parts=its_parts, since_last=share, since_full=its_grown)
            for its_parts, share, its_grown in zip(parts, shares, grown, strict=True)
        ]
        contents = next_contents("auto", growth)
        for number, content in enumerate(contents):
            if content == "full":
                parts[number], grown[number] = [], 0.0
            elif content == "since_full":
                parts[number] = [grown[number]]
            else:
                parts[number].append(shares[number])
        assert sum(map(sum, parts)) <= 0.5 * len(parts)


def test_a_steady_growth_writes_no_full_checkpoint_again() -> None:
    parts: list[list[float]] = [[] for _ in range(8)]
    grown, written = [0.0] * 8, []
    for _ in range(40):
        grown = [min(one + 0.1, 1.0) for one in grown]
        growth = [
            TouchedShares(parts=its, since_last=0.1, since_full=full) for its, full in zip(parts, grown, strict=True)
        ]
        contents = next_contents("auto", growth)
        for number, content in enumerate(contents):
            parts[number] = [] if content == "full" else [*parts[number], 0.1]
            grown[number] = 0.0 if content == "full" else grown[number]
        written.append(sum(1.0 if content == "full" else 0.1 for content in contents) / 8)
    assert max(written) < 0.5
    assert sum(written) / len(written) < 0.25, "with full ones in between it would be .2"
