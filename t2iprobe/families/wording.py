"""English that a template needs: a or an by sound, and plurals of nouns and noun phrases."""

import re
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType

# Words that start with a vowel letter but a consonant sound ("you", "w").
_CONSONANT_SOUND = re.compile(
    r"eu|ewe|ewer|one(?!r|i)|once|ouija|ubiquit|ukulele|unanim|uni(?!n|m|d)|unidir|"
    r"ura(?!e)|ureth|urin|usa|use|using|usu|uten|uta|uter|util|uto|uvu"
)
# Words that start with a consonant letter but a vowel sound.
_VOWEL_SOUND = re.compile(r"heir|honest|honor|honour|hour|yttr")
_VOWEL_NAMED_LETTERS = frozenset("aefhilmnorsx")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SPELLED_WITH_VOWELS = _words("ATM FBI LED MRI NBA NFC RFID SOS SUV UFO URL USA USB")

_INVARIANT = _words(
    "aircraft bison broccoli deer elk fish moose offspring salmon series sheep shrimp species "
    "spacecraft squid swine trout "
    # Things that are plural already.
    "binoculars clothes glasses goggles headphones jeans leggings overalls pajamas pants pliers "
    "pyjamas scissors shorts skis sunglasses tights tongs trousers tweezers"
)
_IRREGULAR = {
    "axis": "axes", "basis": "bases", "cactus": "cacti", "crisis": "crises",
    "criterion": "criteria", "die": "dice", "fungus": "fungi", "oasis": "oases", "ox": "oxen",
    "person": "people", "phenomenon": "phenomena", "quiz": "quizzes", "stimulus": "stimuli",
    "thesis": "theses",
    # One-syllable endings that must not be taken from longer words ("human", "mongoose").
    "foot": "feet", "goose": "geese", "half": "halves", "louse": "lice", "elf": "elves",
    "self": "selves",
}  # fmt: skip
# Endings that stay irregular in compounds: snowman, eyetooth, dormouse, bookshelf, penknife.
_IRREGULAR_ENDINGS = {
    "child": "children", "tooth": "teeth", "mouse": "mice", "knife": "knives", "wife": "wives",
    "life": "lives", "leaf": "leaves", "shelf": "shelves", "wolf": "wolves", "calf": "calves",
    "loaf": "loaves", "thief": "thieves", "sheaf": "sheaves", "scarf": "scarves", "hoof": "hooves",
    "dwarf": "dwarves", "man": "men",
}  # fmt: skip
_REGULAR_MAN = _words("caiman german human norman ottoman roman shaman talisman")
_O_WITH_ES = _words("cargo domino echo hero mango mosquito potato tomato tornado torpedo volcano")
_HARD_CH = _words("epoch eunuch loch monarch patriarch stomach tech")

_SINGULAR_COUNTS = frozenset({"1", "one", "a", "an", "a single", "a lone", "exactly one"})


def article(phrase: str) -> str:
    """The article "a" or "an", by the sound with which the phrase starts.

    Example:
        >>> [article(word) for word in ("orange", "unicycle", "hourglass", "8-ball", "X-ray")]
        ['an', 'a', 'an', 'an', 'an']
    """
    plain = unicodedata.normalize("NFD", phrase)
    first = re.search(r"[^\W_]+", "".join(c for c in plain if not unicodedata.combining(c)))
    return "an" if first and _starts_with_vowel_sound(first.group()) else "a"


def _starts_with_vowel_sound(word: str) -> bool:
    digits = re.match(r"\d+", word)
    if digits:
        number = digits.group()
        eleven_or_eighteen = number[:2] in {"11", "18"} and (
            len(number) % 3 == 2 or len(number) == 4
        )
        return number[0] == "8" or eleven_or_eighteen
    lower = word.lower()
    spelled = word.isupper() and (word in _SPELLED_WITH_VOWELS or not re.search("[AEIOUY]", word))
    if len(word) == 1 or spelled:
        return lower[0] in _VOWEL_NAMED_LETTERS
    if lower[0] in "aeiou":
        return not _CONSONANT_SOUND.match(lower)
    return bool(_VOWEL_SOUND.match(lower))


def plural(noun: str) -> str:
    """The plural of a noun or noun phrase.

    The head is the last word, or the last one before "of", "in", "with" or "on".

    Example:
        >>> [plural(word) for word in ("bench", "sheep", "wine glass", "bunch of grapes")]
        ['benches', 'sheep', 'wine glasses', 'bunches of grapes']
    """
    phrase = re.match(r"(.+?)((?:[ -](?:of|in|with|on)[ -].+)?)$", noun)
    if phrase is None:
        return noun
    head, rest = phrase.groups()
    start = max(head.rfind(" "), head.rfind("-")) + 1
    return head[:start] + _plural_word(head[start:]) + rest


def _plural_word(word: str) -> str:
    lower = word.lower()
    if lower in _INVARIANT:
        return word
    if lower in _IRREGULAR:
        return word[0] + _IRREGULAR[lower][1:]
    if lower not in _REGULAR_MAN:
        for ending, irregular in _IRREGULAR_ENDINGS.items():
            if lower.endswith(ending):
                return word[: len(word) - len(ending)] + _like(word, irregular, len(ending))
    if lower in _O_WITH_ES or (
        lower.endswith(("s", "x", "z", "ch", "sh")) and lower not in _HARD_CH
    ):
        return word + "es"
    if re.search(r"([^aeiou]|qu)y$", lower):
        return word[:-1] + "ies"
    return word + "s"


def _like(word: str, irregular: str, ending: int) -> str:
    """The irregular ending, with a capital where the ending is the whole word and has one."""
    whole = len(word) == ending
    return irregular.capitalize() if whole and word[0].isupper() else irregular


def counted(noun: str, count: str, plurals: Mapping[str, str] = MappingProxyType({})) -> str:
    """The noun as it stands after a count word: "bench" after "one", "benches" after "three".

    Args:
        noun: the singular.
        count: a word or a number.
        plurals: plurals that the rules here would get wrong, by singular.

    Example:
        >>> counted("mouse", "one"), counted("mouse", "two"), counted("mouse", "0")
        ('mouse', 'mice', 'mice')
    """
    if count.strip().lower() in _SINGULAR_COUNTS:
        return noun
    return plurals.get(noun) or plural(noun)
