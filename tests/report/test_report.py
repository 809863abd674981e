"""The HTML report: page and figures."""

import base64
import dataclasses
import hashlib
import html
import json
import math
import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from report_pages import Page, evaluated, stream, written
from synthetic_scores import make_columns, make_scores

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.policy_rows import ALL_POLICIES
from prism_jax.report import figures, page, tables, templates
from prism_jax.runtime.shown_text import visible
from prism_jax.scores import Scores


@pytest.fixture(scope="module")
def arguments():
    return evaluated(make_scores())


@pytest.fixture
def metrics(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [
        {"step": i, "loss": 2.0 / i, "loss_need": 0.7 - 0.01 * i, "phase": "warm", "done": False} for i in range(1, 51)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_page_is_well_formed_and_makes_no_request(arguments, metrics):
    source = written(arguments, metrics_path=metrics, streams=[stream("stream-1")], facts={"command": "run me"})
    page = Page(source)
    assert page.tags.count("h1") == 1
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert not [
        item for item in page.attributes if item[1] in ("src", "href", "action", "srcset") or item[1].startswith("on")
    ]
    assert "http" not in source.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "url(" not in source and "@import" not in source
    for needed in ("prefers-color-scheme: dark", "@media print", "tabular-nums"):
        assert needed in source


def test_every_cell_of_every_table_and_every_fact_is_on_the_page(arguments):
    facts = {"command": "python -m prism_jax train", "need": "strict"}
    page = Page(written(arguments, facts=facts))
    cells = " ".join(
        cell
        for table in tables.all_tables(arguments[0])
        for s in table.sections
        for row in s.rows
        for cell in row.cells
    )
    assert all(cell in page.text for cell in cells.split())
    for name, value in facts.items():
        assert f"{name} {value}" in page.text
    assert "inverse-propensity weights (all are 1): there is no column logged" in page.text
    assert f"T = {arguments[2].accept_slow.temperature:.4f}" in page.text
    assert page.text.count("(deployed)") == 4


def test_the_same_arguments_give_the_same_bytes(arguments, metrics):
    more = {"metrics_path": metrics, "streams": [stream("stream-1")]}
    assert written(arguments, **more) == written(evaluated(make_scores()), **more)


def hashes(source, tag):
    """The hashes of a page's inline elements of one kind, as its policy must name them."""
    bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", source, re.DOTALL)
    return [base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies]


def test_the_policy_allows_the_pages_own_style_and_script_by_their_hashes_only(arguments):
    source = written(arguments)
    (policy,) = [value for _, name, value in Page(source).attributes if name == "content" and "default-src" in value]
    allowed = {name: sources for name, *sources in (part.split() for part in policy.split(";"))}
    assert allowed.pop("default-src") == allowed.pop("base-uri") == allowed.pop("form-action") == ["'none'"]
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        found = [f"'sha256-{digest}'" for digest in hashes(source, tag)]
        assert allowed.pop(f"{tag}-src", []) == found
    assert not allowed


def test_an_asset_that_would_end_its_element_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(templates, "FOLDER", tmp_path)
    for text in ("a = '</script>'", "<!-- a"):
        (tmp_path / "a.js").write_text(text)
        with pytest.raises(ValueError, match=r"a\.js: found '</' or '<!--', expected neither"):
            templates.load_asset("a.js")


ATTACKS = {
    "script": "<script>alert('1')</script></script><svg onload=alert(1)>",
    "style": "</style><style>*{display:none}</style><p style='position:fixed'>",
    "attribute": '"\'><img src=x onerror=alert(1)>&{{ 7*7 }} a" onmouseover="alert(1)',
    "comment": "<!--<script>--><![CDATA[ ]]>",
    "bidi": "\u202egnp.exe\u2066 \u200f\u0000\u2028",
}


@pytest.mark.parametrize("kind", ATTACKS)
def test_text_from_outside_is_escaped(tmp_path, kind):
    attack = ATTACKS[kind]
    columns = make_columns(slow=False)
    columns["stream"] = [f"{name} {attack}" for name in columns["stream"]]
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(json.dumps({"step": i, attack: 1.0 * i}) + "\n" for i in range(3)))
    source = written(
        evaluated(Scores.from_columns(columns)),
        metrics_path=metrics,
        streams=[stream(f"stream-1 {attack}", text=f"{attack.replace('{', '{{').replace('}', '}}')} {{}}")],
        facts={attack: attack},
    )
    page = Page(source)
    clean = Page(written(evaluated(make_scores(slow=False))))
    assert set(page.tags) <= set(clean.tags)
    assert page.tags.count("style") == 1 and page.tags.count("script") == clean.tags.count("script")
    assert not [item for item in page.attributes if item[1].startswith("on") or item[1] == "style"]
    shown = " ".join(visible(attack).split())
    assert page.text.count(shown) >= 15  # in twelve events, the stream's name, two facts, a curve's name
    assert not set(source) & set("\u202e\u2066\u200f\u0000\u2028")


@pytest.mark.parametrize(
    "drop",
    [
        ("p_both_true",),
        ("p_need_true", "p_accept_true", "p_both_true", "time"),
        ("p_need_slow", "p_accept_slow", "domain"),
    ],
)
@pytest.mark.parametrize("policy", ["dynamic", "product", "never"])
def test_every_kind_of_table_and_policy_makes_a_page(drop, policy):
    columns = {name: column for name, column in make_columns(streams=20).items() if name not in drop}
    point = OperatingPoint(policy=policy)
    page = Page(written(evaluated(Scores.from_columns(columns), point)))
    assert policy in page.text
    assert "nan" not in page.text.lower().split()
    assert not [
        value
        for _, name, value in page.attributes
        if name in ("d", "x", "y", "cx", "cy") and ("nan" in value or "inf" in value)
    ]


def test_the_first_sentence_compares_with_both_constants_and_says_how_many_offers_are_dismissed(arguments):
    evaluation = arguments[0]
    row = evaluation.deployed
    always, never = (evaluation.policy(name).realised_cost for name in ("always", "never"))
    less = [round(100 * (1 - row.realised_cost / cost)) for cost in (always, never)]
    offers = evaluation.trace.decision
    dismissed = 100 * (1 - evaluation.trace.y_accept[offers]).mean()
    raw = evaluation.policy(row.policy, "raw")
    more = round(100 * (row.realised_cost / raw.realised_cost - 1))
    assert raw.difference_low < 0 < raw.difference_high
    assert page.finding(evaluation) == (
        f"The policy “on margin” on calibrated signals costs {less[0]} % less than always offering and {less[1]} % "
        f"less than never offering and {more} % more (not told apart) than on the raw signals; {dismissed:.1f} % of "
        "its offers are dismissed"
    )
    shown = page.headlines(evaluation)
    assert [one.value for one in shown][:2] == [f"{row.realised_cost:.4f}", f"{100 * row.gap_closed:.1f}"]
    gold = evaluation.trace.y_need * evaluation.trace.y_accept
    (card,) = (one for one in shown if one.label == "of offers dismissed")
    assert card.value == f"{dismissed:.1f}"
    assert card.note == f"not needed or dismissed: {100 * (1 - gold[offers]).mean():.1f} %"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("never", r"The policy “never” costs [0-9]+ % less \(not told apart\) than always offering; it makes no offer"),
        (
            "always",
            r"The policy “always” costs [0-9]+ % more \(not told apart\) than never offering; [0-9.]+ % of its offers "
            "are dismissed",
        ),
    ],
)
def test_a_constant_is_compared_with_the_other(policy, expected):
    evaluation = evaluated(make_scores(streams=20), OperatingPoint(policy=policy))[0]
    assert re.fullmatch(expected, page.finding(evaluation))


def test_costs_of_nothing_are_not_compared_in_percent(arguments):
    never = arguments[0].policy("never")

    def against(cost, other, *ends):
        low, high = ends or (None, None)
        row = dataclasses.replace(never, realised_cost=other, difference_low=low, difference_high=high)
        return page._against(cost, row)

    assert against(0.25, 0.0) == "0.2500 per step against 0.0000 for"
    assert against(0.2, 0.2004) == "as much as"
    assert against(0.3, 0.2) == against(0.3, 0.2, -0.15, -0.05) == "50 % more than"
    assert against(0.3, 0.2, -0.25, 0.05) == "50 % more (not told apart) than"


def test_the_glossary_says_every_term_of_the_page_once(arguments):
    text = written(arguments)
    glossary = text[text.index("How to read this report") :]
    terms = re.findall("<dt>(.*?)</dt>", glossary)
    assert len(terms) == len(set(terms)) > 40
    labels = {column.label for table in tables.all_tables(arguments[0]) for column in table.columns}
    assert labels <= set(map(html.unescape, terms))
    meanings = re.findall("<dd>(.*?)</dd>", glossary)
    assert all(len(meaning) > 5 for meaning in meanings)


# Figures


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-6, 1e6), most=st.integers(1, 10))
def test_ticks_are_round_evenly_spaced_and_inside(low, span, most):
    scale = figures.Scale(low, low + span, 0.0, 100.0)
    if scale.high - scale.low < 1e-9 * max(abs(low), 1):
        return
    ticks = scale.ticks(most)
    assert len(ticks) <= most + 1
    slack = 1e-6 * span
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)
    if len(ticks) > 1:
        unit = ticks[1] - ticks[0]
        assert np.diff(ticks) == pytest.approx(unit, rel=1e-4)
        mantissa = unit / 10 ** math.floor(math.log10(unit) + 1e-6)
        assert min(abs(mantissa - nice) for nice in (1, 2, 2.5, 5, 10)) < 1e-2


def test_a_scale_is_linear_between_its_ends():
    scale = figures.Scale(2, 4, 100, 0)
    assert [scale(value) for value in (2, 2.5, 3, 4)] == ["100.00", "75.00", "50.00", "0.00"]


def test_the_reliability_figure_draws_the_filled_bins_where_the_curve_has_them(arguments):
    for row in arguments[0].signals:
        figure, curve = figures.reliability_figure(row), row.reliability
        filled = np.flatnonzero(curve.count)
        assert len(figure.marks) == len(figure.bars) == len(figure.bands) == len(filled)
        for k, mark, band in zip(filled, figure.marks, figure.bands, strict=True):
            assert (mark.x, mark.y) == (figure.x(curve.mean_p[k]), figure.y(curve.mean_y[k]))
            assert (mark.kind == "within") == (curve.low[k] <= curve.mean_y[k] <= curve.high[k])
            assert float(band.y) == pytest.approx(float(figure.y(curve.high[k])))
            assert float(band.y) + float(band.height) == pytest.approx(float(figure.y(curve.low[k])), abs=0.02)
            assert f"{curve.count[k]} labels" in mark.text
        tallest = max(float(bar.height) for bar in figure.bars)
        shares = [float(bar.height) / tallest for bar in figure.bars]
        assert shares == pytest.approx(list(curve.count[filled] / curve.count.max()), abs=1e-3)
        assert f"ECE {row.ece:.4f}" in figure.caption


def test_the_cost_figure_places_each_policy_at_its_realised_cost(arguments):
    figure = figures.cost_figure(arguments[0])
    for label, _, marks, deployed in figure.rows:
        rows = [row for row in arguments[0].policies if ALL_POLICIES[row.policy].label == label]
        assert sorted(mark.x for mark in marks) == sorted(figure.x(row.realised_cost) for row in rows)
        assert deployed == any(row.deployed for row in rows)
    assert "clairvoyant" not in [label for label, *_ in figure.rows]
    assert [kind for kind, *_ in figure.lines] == ["constant", "bayes"]


@pytest.mark.parametrize("count", [2, 399, 400, 401, 5000])
def test_curves_keep_their_ends_and_mean_whatever_their_length(count):
    steps, values = list(range(1, count + 1)), [1.0 / i for i in range(1, count + 1)]
    figure = figures.curve_figure("loss", steps, values)
    points = re.findall(r"[ML](\S+) (\S+)", figure.path)
    assert len(points) == len(re.findall("[ML]", figure.smooth)) <= 400
    assert (points[0][0], points[-1][0]) == ("54.00", "308.00")
    assert f"1 at step 1, {1 / count:.4g} at step {count}" in figure.text


def test_a_constant_curve_is_drawn():
    figure = figures.curve_figure("rate", [1, 2, 3], [0.0, 0.0, 0.0])
    assert "nan" not in figure.path and len(figure.y.ticks(4)) >= 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"step": 1, "loss": 1}\n{"step": 2, "lo', "line 2: found broken JSON"),
        ('{"loss": 1}\n', "line 1: found .* expected an object with a numeric \"step\""),
        ("[1]\n", "line 1: found .* expected an object"),
    ],
)  # fmt: skip
def test_broken_metrics_are_refused(tmp_path, arguments, text, message):
    path = tmp_path / "metrics.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        written(arguments, metrics_path=path)
    assert str(caught.value).startswith(str(path))


def test_curves_are_drawn_for_every_number_and_for_nothing_else(metrics):
    assert [curve.name for curve in page.loss_curves(metrics)] == ["loss", "loss_need"]
