import numpy as np
import pytest

from prism_jax.probe.ngrams import Idf, count_texts, ngrams

TRAIN = ("The user opens a file", "The user searches for 'capitalize'", "a a a", "The user opens a file")
NEW = ("search for the files", "a", "", "Zyzzyva opens")


def test_vectors_are_those_of_scikit_learn():
    """All texts together are the training texts here, because scikit-learn drops n-grams that it has not seen."""
    text = pytest.importorskip("sklearn.feature_extraction.text")
    texts = [*TRAIN, *NEW]
    theirs = text.TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True).fit(sorted(set(texts)))
    counted = count_texts(texts)
    ours = Idf.fit([counted]).vectors(counted)
    expected = theirs.transform(texts).toarray()[:, [theirs.vocabulary_[name] for name in counted.names]]
    np.testing.assert_allclose(ours.toarray(), expected, atol=1e-12)


def test_a_new_ngram_weighs_more_than_any_known_one():
    """Texts of a new stream are told apart by the words that only they hold."""
    idf = Idf.fit([count_texts(TRAIN)])
    counted = count_texts(["zyzzyva zyzzyva file"])
    weights = dict(zip(counted.names, idf.vectors(counted).toarray()[0] / counted.matrix.toarray()[0], strict=True))
    assert weights[" zy"] == max(weights.values()) > weights["file"]


def test_streams_add_up():
    apart = Idf.fit([count_texts(TRAIN[:2]), count_texts(TRAIN[2:])])
    assert apart.documents == 4  # the text of both streams counts in each
    assert apart.frequency[" fi"] == 2
    assert Idf.fit([count_texts(TRAIN)]).documents == 3


def test_short_words_count_once():
    assert ngrams("a") == (" a ",)
    assert ngrams("ab") == (" ab", "ab ", " ab ")
