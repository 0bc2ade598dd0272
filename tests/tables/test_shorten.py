"""Shortened texts: what tells them apart stays."""

from hypothesis import given
from hypothesis import strategies as st

from pyprof.tables.shorten import enough, shortened

NAMES = st.one_of(
    st.text("ab._", max_size=40),
    st.builds(
        "model.{}.layers.{}.{}".format,
        st.sampled_from(["encoder", "decoder" * 9]),
        st.integers(0, 200),
        st.text("qkv", max_size=9),
    ),
    st.text(max_size=60),
)


def _cut(texts: list[str], width: int) -> list[str]:
    found = shortened(texts, width)
    return [found[text] for text in texts]


def test_what_all_share_is_left_out_at_whole_words() -> None:
    layers = ["model.encoder.layers.3.attn.qkv", "model.encoder.layers.11.attn.qkv"]
    assert _cut(layers, 24) == ["model.…layers.3.attn.qkv", "model.…ayers.11.attn.qkv"]
    paths = [f"/usr/lib/python3/site-packages/torchvision/models/resnet.py:{line}" for line in (124, 128)]
    assert _cut(paths, 24) == ["/usr/lib/p…resnet.py:124", "/usr/lib/p…resnet.py:128"]
    assert _cut([*layers, "relu"], 24)[2] == "relu"


def test_an_end_says_more_than_a_middle() -> None:
    assert _cut(["ampere_sgemm_128x64_sliced1x4_tn"], 16) == ["ampere_…ed1x4_tn"]


@given(st.lists(NAMES, max_size=30), st.integers(6, 40))
def test_distinct_texts_stay_distinct_and_within_the_width(texts: list[str], width: int) -> None:
    found = shortened(texts, width)
    assert set(found) == set(texts) and all(len(short) <= width for short in found.values())
    assert len(set(found.values())) == len(found)
    assert all(found[text] == text for text in texts if len(text) <= width)


@given(st.lists(NAMES, min_size=1, max_size=12, unique=True), st.integers(0, 12))
def test_in_enough_room_no_text_needs_a_number(texts: list[str], least: int) -> None:
    found = shortened(texts, max(enough(texts, least), 4))
    assert not any("~" in short for text, short in found.items() if "~" not in text)


def test_a_gap_of_ascii() -> None:
    assert shortened(["abcdefghijklmnop"], 10, "..") == {"abcdefghijklmnop": "abcd..mnop"}
