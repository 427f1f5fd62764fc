"""Plans of models on cards, from files that tests write."""

import json

from attnbench.commands.model.configuration import fields
from attnbench.commands.model.context import ContextQuery
from attnbench.commands.model.plan import card_plan
from attnbench.commands.model.sizing import weight_option

GIB = 1 << 30


def written(tmp_path, values):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(values))
    return file


def planned(tmp_path, values, *lengths, cards=1, memory=80 * GIB, weights=None, files=None):
    query = ContextQuery(lengths=lengths or (32 << 10,), item_bytes=2, memory=memory)
    config = fields(written(tmp_path, values))
    return card_plan(config, query, cards, weight_option(weights), files)
