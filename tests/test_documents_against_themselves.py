"""The documents' figures against each other: what holds, and what the book corrects. No model is needed."""

import math

import pytest

from onematrix import expected

V, D = 50257, 768
DEPTHS = 8  # lines of the lens


def lines(block: str) -> list[list[float]]:
    """The figures of a block of the documents, line by line."""
    text = expected.block("gpt2", block).text
    return [[figure.number for figure in expected.figures(line)] for line in text.splitlines()]


def quoted(block: str) -> list[list[str]]:
    """The tokens of a block, line by line."""
    text = expected.block("gpt2", block).text
    return [
        [p for p in expected.pieces(line) if isinstance(p, str) and p.startswith('"')] for line in text.splitlines()
    ]


def lens() -> list[list[float]]:
    """The three probabilities of each line of the lens, without the number of its block."""
    return [line[-3:] for line in lines("dog-lens")]


# ---------------------------------------------------------------- sizes


def test_the_table_is_rows_times_width():
    (rows, width, product, megabytes), (tied, untied) = lines("size")
    assert (rows, width, product) == (V, D, V * D)
    assert round(product * 4 / 1e6, 1) == megabytes
    assert untied - tied == product


def test_strides_axes_and_vocabulary_tell_the_same_shape():
    assert lines("strides") == [[D, 1, 1, D]]
    assert lines("axes") == [[V, D], [D, V]]
    assert lines("vocabularies")[0] == [V]
    assert lines("dog-cat-neighbour-rank") == [[9, V]]


def test_what_tying_saves_is_not_the_share_that_the_table_holds():
    """Correction: the table is 31.0% of the tied model, and tying saves 23.7% of the untied one."""
    _, (tied, untied) = lines("size")
    assert f"{V * D / tied:.1%}" == "31.0%"
    assert f"{1 - tied / untied:.1%}" == "23.7%"


def test_the_tables_of_four_sizes_are_rows_times_width():
    text = expected.block("gpt2", "embedding-share").text
    for line, (width, _) in zip(text.splitlines(), lines("embedding-share"), strict=True):
        assert line.split()[2] == f"{V * width / 1e6:.1f}M"


def test_the_share_of_the_smallest_size_follows_from_its_table_and_total():
    _, (tied, _) = lines("size")
    assert [D, round(100 * V * D / tied, 1)] == lines("embedding-share")[0]


# ---------------------------------------------------------------- one step on " blue"


def test_the_pushes_follow_from_the_probabilities():
    """A push is p_i / (1 - p_t) of the pull."""
    target = lines("sky-target")[0][0]
    (the, the_share), (cat, cat_share) = lines("sky-forces")
    assert round(100 * the / (1 - target)) == the_share
    assert f"{100 * cat / (1 - target):.4f}" == f"{cat_share:.4f}"


def test_logits_and_probabilities_of_the_sky_are_one_softmax():
    """exp of a gap between two logits is the ratio of the two probabilities."""
    the, blue, current, cat = (line[0] for line in lines("sky-logits"))
    p_the, p_cat = lines("sky-forces")[0][0], lines("sky-forces")[1][0]
    p_blue = lines("sky-target")[0][0]
    apart = 0.012  # two logits of two places each, and the probability's own rounding
    assert math.log(p_the / p_blue) == pytest.approx(the - blue, abs=apart + 0.5e-3 / p_blue)
    assert math.log(p_the / p_cat) == pytest.approx(the - cat, abs=apart)
    assert p_the * math.exp(current - the) == pytest.approx(3.9e-5, rel=0.02)


def test_the_two_parts_print_the_same_probabilities_for_the_sky():
    the, blue, _ = lines("two-prompts")[0]
    assert the == pytest.approx(lines("sky-forces")[0][0], abs=0.5e-3)
    assert blue == lines("sky-target")[0][0]


def test_is_ends_low_by_cosine_and_far_above_most_by_logit():
    """Correction: 88% of the vocabulary lies below one in a million, and " is" well above it."""
    the, _, current, _ = (line[0] for line in lines("sky-logits"))
    p_is = lines("sky-forces")[0][0] * math.exp(current - the)
    (ignored,) = lines("sky-share-ignored")[0]
    rank_by_cosine = lines("is-drift")[-1][-1]
    assert p_is > 1e-6
    assert rank_by_cosine > V * ignored / 100


# ---------------------------------------------------------------- the dog


@pytest.mark.parametrize("block", ["dog-neighbours", "dog-next"])
def test_lists_are_printed_from_the_largest(block):
    values = [line[0] for line in lines(block)]
    assert values == sorted(values, reverse=True)


def test_ranks_follow_the_printed_probabilities():
    (p_cat, cat), (p_dog, dog) = lines("dog-next-cat-dog")
    assert p_dog > p_cat
    assert dog < cat
    assert max(p_dog, p_cat) < lines("dog-next")[-1][0]
    assert cat * p_cat < 1  # so many tokens with at least this probability fit into one
    assert dog * p_dog < 1


def test_one_probability_is_printed_two_ways():
    """The document prints the same value as 0.104 and as 0.103: one unit of the last place is its own tolerance."""
    after_the_dog = dict(zip((t[0] for t in quoted("dog-next")), (v[0] for v in lines("dog-next")), strict=True))
    last_line = dict(zip(quoted("dog-lens")[-1], lens()[-1], strict=True))
    assert (after_the_dog['"\'s"'], last_line['"\'s"']) == (0.104, 0.103)
    for token, p in last_line.items():
        assert after_the_dog[token] == pytest.approx(p, abs=0.0011)


def test_the_lens_prints_probabilities_from_the_largest_and_no_line_holds_more_than_one():
    assert len(lens()) == DEPTHS
    for line in lens():
        assert line == sorted(line, reverse=True)
        assert sum(line) <= 1 + 0.0015  # three rounded figures


def test_the_switch_is_the_first_printed_block_without_the_dog_on_top():
    blocks = [0] + [int(line[0]) for line in lines("dog-lens")[1:]]
    first = next(block for block, tokens in zip(blocks, quoted("dog-lens"), strict=True) if tokens[0] != '" dog"')
    assert [[first]] == lines("dog-switch")


def test_the_first_line_of_the_lens_is_a_gap_of_six_in_the_logit():
    """0.997 against 0.003: between 5.65 and 5.99. Raw rows would need a norm near 5.3 for it; see below."""
    low, high = math.log(0.9965 / 0.0035), math.log(0.9975 / 0.0025)
    assert (round(low, 2), round(high, 2)) == (5.65, 5.99)
    first, second, _ = lens()[0]
    assert low <= math.log(first / second) <= high


def test_the_norm_that_raw_rows_would_need_lies_among_the_lengths_that_exist():
    """ " dogs" has cosine 0.796 to " dog": were both rows as long as n, the gap would be n^2 (1 - 0.796)."""
    dogs = lines("dog-neighbours")[0][0]
    length = math.sqrt(math.log(0.997 / 0.003) / (1 - dogs))
    shortest, longest = lines("row-norms")[0]
    assert length == pytest.approx(5.3, abs=0.1)
    assert shortest < length < longest


def test_at_the_embedding_the_vector_is_not_only_the_row():
    """Correction: a vector that equals its row has cosine one with it; the companion prints less than a half."""
    cosine, _, rank = lines("is-drift")[0]
    assert cosine < 0.5
    assert rank == 1


def test_the_rank_of_is_recovers_in_the_raw_stream_and_falls_with_the_norm():
    """Correction: only the final norm throws it down."""
    block_4, block_8, raw, normed = (line[-1] for line in lines("is-drift")[1:])
    assert block_4 > block_8 > raw
    assert normed > V - 200


def test_the_rank_of_the_dogs_own_row_only_grows():
    ranks = [line[-1] for line in lines("dog-own-row-rank")]
    assert ranks == sorted(ranks)
    assert ranks[0] == 1


def test_right_meaning_wrong_slot_repeats_the_two_ranks():
    text = expected.block("gpt2", "right-meaning-wrong-slot").text
    near = lines("dog-cat-neighbour-rank")[0][0]
    answer = lines("dog-next-cat-dog")[0][1]
    assert f"{near}th" in text
    assert f"{answer}rd" in text


def test_cat_is_printed_last_among_the_neighbours_and_two_nearer_rows_are_left_out():
    """The list shows six rows and the rank is nine with the dog counted: two of the eight nearest are not shown."""
    rank = lines("dog-cat-neighbour-rank")[0][0]
    assert quoted("dog-neighbours")[-1] == ['" cat"']
    assert rank - 1 - len(lines("dog-neighbours")) == 2


# ---------------------------------------------------------------- the companion parts


def test_ids_lie_in_the_vocabulary_and_agree_between_blocks():
    (sky, ate, words) = lines("ids")
    assert all(0 <= i < V for i in sky + ate + words)
    assert lines("row-464")[0][0] == sky[0]


def test_the_third_cosine_is_no_identity():
    cosines = [line[0] for line in lines("gradient-cosines")]
    assert cosines[:2] == [1, -1]
    assert 0 < cosines[2] < 1
