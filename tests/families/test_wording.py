"""Articles by sound and plurals, the faults of public prompt generators among them."""

import pytest

from t2iprobe.families.wording import article, counted, plural

AN = (
    "orange umbrella apple eagle igloo ugly upper urn uninteresting unidentified udon onion hour "
    "hourglass honest heirloom 8-ball 80 11 18 11,000 X-ray L-shaped SUV LED MRI FBI étude "
    '"umbrella" e-bike Eiffel oneiric'
)
A = (
    "red unicycle unicorn uniform university European euphonium ukulele utensil user one-way once "
    "onesie ouija UFO USB U-turn T-shirt 1 7 110 180 1,800 house heron yellow ewe NASA 'unicycle'"
)


@pytest.mark.parametrize("phrase", AN.split())
def test_an_before_a_vowel_sound(phrase):
    assert article(phrase) == "an"


@pytest.mark.parametrize("phrase", A.split())
def test_a_before_a_consonant_sound(phrase):
    assert article(phrase) == "a"


@pytest.mark.parametrize(
    ("singular", "expected"),
    [
        ("bench", "benches"),
        ("sheep", "sheep"),
        ("knife", "knives"),
        ("mouse", "mice"),
        ("skis", "skis"),
        ("toothbrush", "toothbrushes"),
        ("person", "people"),
        ("snowman", "snowmen"),
        ("human", "humans"),
        ("goose", "geese"),
        ("mongoose", "mongooses"),
        ("box", "boxes"),
        ("ox", "oxen"),
        ("cross", "crosses"),
        ("baby", "babies"),
        ("toy", "toys"),
        ("roof", "roofs"),
        ("bookshelf", "bookshelves"),
        ("potato", "potatoes"),
        ("piano", "pianos"),
        ("stomach", "stomachs"),
        ("wine glass", "wine glasses"),
        ("computer mouse", "computer mice"),
        ("bunch of grapes", "bunches of grapes"),
        ("mother-in-law", "mothers-in-law"),
        ("Man", "Men"),
        ("quiz", "quizzes"),
    ],
)
def test_plural(singular, expected):
    assert plural(singular) == expected


@pytest.mark.parametrize("count", ["one", "1", "a", "One"])
def test_one_is_singular(count):
    assert counted("bench", count) == "bench"


@pytest.mark.parametrize("count", ["two", "2", "0", "no", "many", "eleven"])
def test_every_other_count_is_plural(count):
    assert counted("bench", count) == "benches"


def test_a_stated_plural_wins_also_over_an_invariant_one():
    assert counted("fish", "two", {"fish": "fishes"}) == "fishes"
    assert counted("fish", "one", {"fish": "fishes"}) == "fish"
