"""Hand-written YAML: nothing is guessed, and every fault names its place."""

import pytest

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.families.yamlfile import parse_yaml, read_yaml


def parse(text):
    return parse_yaml(text if isinstance(text, bytes) else text.encode(), "f.yaml")


def error(text):
    """The text of the error that a file causes, at the latest when its value `p` is read as text."""
    with pytest.raises(DataError) as caught:
        parse(text).fields()["p"].text()
    message = str(caught.value)
    assert "\n" not in message
    return message


GUESSED = (
    "on off yes no Yes TRUE y n 010 0x1F 0o7 1_000 11:44 190:20:30 1e-4 .inf .nan 1.0 null ~ "
    "2001-01-01 = <<"
)


@pytest.mark.parametrize("value", GUESSED.split())
def test_every_scalar_stays_as_written(value):
    assert parse(f"p: [{value}, other]").fields()["p"].texts()[0] == value
    assert parse(f"{value}: a").fields()[value].text() == "a"


def test_repeated_keys_name_both_lines():
    message = error("seeds: 1\np: 2\nseeds: 3\n")
    assert message.startswith("f.yaml, line 3")
    assert "'seeds'" in message
    assert "line 1" in message
    assert "again on line 3" in message


def test_repeated_keys_are_found_at_any_depth():
    assert "again on line 4" in error("p:\n  - a:\n      b: 1\n      b: 2\n")


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("p:\n\t- b\n", 2, 1), ("p: a\n  \tb\n", 2, 3), ("p: [a,\n\tb]\n", 2, 1)],
)
def test_tabs_name_line_and_column(text, line, column):
    message = error(text)
    assert f"line {line}, column {column}" in message
    assert "tab" in message


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("p: a sign reading: stop", 'p: "a sign reading: stop"'),
        ("p: {a color} {shape}", 'p: "{a color} {shape}"'),
        ("p: {a color}", '"{a color}"'),
        ("p: {{a}}", '"{{a}}"'),
        ("p: *star", 'p: "*star"'),
        ("p: @home", 'p: "@home"'),
        ("p: %d", 'p: "%d"'),
    ],
)
def test_text_that_needs_quotes_is_shown_quoted(text, quoted):
    assert error(text).endswith(f"write {quoted}")


@pytest.mark.parametrize("text", ["- a sign reading: stop\n- b", "[a sign reading: stop, b]"])
def test_a_list_item_that_became_a_mapping_is_shown_quoted(text):
    with pytest.raises(DataError, match=r'got a mapping.*write "a sign reading: stop"') as caught:
        parse("p:\n" + text.replace("- ", "  - ") if "- " in text else f"p: {text}").fields()[
            "p"
        ].texts()
    assert ", p[0]:" in str(caught.value)


def test_indentation_faults_do_not_advise_quotes():
    assert "indentation" in error("p: b\n c: d")


@pytest.mark.parametrize("text", ["p: #ff0000", "p:", 'p: "  "'])
def test_blank_text_is_refused(text):
    assert "got nothing" in error(text)


@pytest.mark.parametrize("text", ["p: !x y", "p: !!python/object/apply:os.getcwd []"])
def test_tags_are_refused(text):
    assert "tag" in error(text)


@pytest.mark.parametrize("text", ['p: "a\\nb"', "p: |\n  a\n  b\n", 'p: "a\\tb"'])
def test_text_is_one_line(text):
    assert "no line breaks" in error(text)


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert parse(b"\xef\xbb\xbfprompt: x").fields()["prompt"].text() == "x"


def test_a_windows_byte_names_line_and_encoding():
    message = error(b"a: 1\np: it\x92s\n")
    assert "line 2" in message
    assert "0x92" in message
    assert "CP1252" in message


def test_utf16_and_control_characters_are_refused():
    assert "UTF-16" in error("p: a".encode("utf-16"))
    assert "line 2" in error("a: b\np: \x00")


def test_composed_and_decomposed_forms_are_one_text():
    composed, decomposed = "p: r\u00e9sum\u00e9", "p: re\u0301sume\u0301"
    assert parse(composed).fields()["p"].text() == parse(decomposed).fields()["p"].text()


def test_empty_files_documents_and_self_references_are_refused():
    assert "empty" in error("# nothing\n")
    assert "document" in error("p: 1\n---\np: 2\n")
    assert "got a list" in error("p: &x [*x]")


def test_unknown_and_missing_keys():
    with pytest.raises(DataError, match=r"line 2, temlate: unknown key 'temlate': did you mean"):
        parse("name: a\ntemlate: b").record(("name", "template"))
    with pytest.raises(DataError, match="missing template; required: name, template"):
        parse("name: a").record(("name", "template"))


def test_a_value_listed_twice_names_both_lines():
    with pytest.raises(DataError, match=r"line 4, p\[2\]: 'a' is listed twice \(first on line 2\)"):
        parse("p:\n- a\n- b\n- a\n").fields()["p"].texts()


def test_an_unreadable_file_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot read"):
        read_yaml(tmp_path)
