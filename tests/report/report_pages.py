"""Pages that tests write and read, and the evaluations and streams that they show."""

import html.parser

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.report import page
from prism_jax.streams import Event, Step, Stream

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(html.parser.HTMLParser):
    """Checks that every tag is closed in order, and collects tags, attributes and text."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], ["script"]):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def evaluated(scores, point=None):
    point = OperatingPoint() if point is None else point
    calibration = protocol.calibrate(scores)
    return protocol.evaluate(scores, calibration, point), scores, calibration, point


def stream(name, steps=12, text="Types {}."):
    events = tuple(Event(time=100.0 + 61 * i, text=text.format(i)) for i in range(steps + 1))
    return Stream(id=name, events=events, steps=tuple(Step(event=i + 1) for i in range(steps)), domain="coding")


def written(arguments, **more):
    evaluation, scores, calibration, point = arguments
    return page.render(evaluation, protocol.explore(scores, calibration, point), calibration, **more)
