"""What a written page holds."""

import json
import re
from html.parser import HTMLParser

EVIL = "</script><script>alert(1)</script>"


class Page(HTMLParser):
    """Elements as (tag, attributes), the text outside scripts and styles, and the scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.scripts, self.inside = [], "", [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def read_script_data(text):
    """The JSON that the scripts of a page read."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
