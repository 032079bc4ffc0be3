"""What make_dashboard.py does: the panels as Grafana reads them."""

from __future__ import annotations

import argparse
import json

from grafana_foundation_sdk.builders import common, stat, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableRefresh,
)

from .panels import ROWS, STATS, Graph

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
PANEL_WIDTH, PANEL_HEIGHT, STAT_WIDTH, STAT_HEIGHT = 8, 8, 4, 4


def query(expression: str, legend: str, place: int) -> Dataquery:
    """One query of a panel; `place` gives its letter."""
    return Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + place))


def stat_panel(title: str, unit: str, expression: str) -> stat.Panel:
    """One number."""
    panel = stat.Panel().title(title).unit(unit).datasource(SOURCE)
    panel.span(STAT_WIDTH).height(STAT_HEIGHT).graph_mode(BigValueGraphMode.AREA)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.with_target(query(expression, title, 0))


def graph_panel(graph: Graph) -> timeseries.Panel:
    """Curves over time."""
    panel = timeseries.Panel().title(graph.title).description(graph.description)
    panel.unit(graph.unit).datasource(SOURCE).span(PANEL_WIDTH).height(PANEL_HEIGHT).min(0)
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST)
    panel.legend(legend.placement(LegendPlacement.BOTTOM).show_legend(True))
    if graph.stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(20)
    for place, (name, expression) in enumerate(graph.queries.items()):
        panel.with_target(query(expression, name, place))
    return panel


def dashboard() -> Dashboard:
    """The whole of it."""
    board = Dashboard("duovec").uid("duovec").tags(["duovec", "embeddings"])
    board.description("Embedding servers: load, latency, batches, incidents.")
    board.time("now-3h", "now").refresh("30s").tooltip(DashboardCursorSync.CROSSHAIR)
    board.with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    servers = (
        QueryVariable("instance").label("Server").query("label_values(duovec_ready, instance)")
    )
    servers.datasource(SOURCE).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    board.with_variable(servers.multi(True).include_all(True).all_value(".*"))
    for title, (unit, expression) in STATS.items():
        board.with_panel(stat_panel(title, unit, expression))
    for title, graphs in ROWS.items():
        board.with_row(Row(title))
        for graph in graphs:
            board.with_panel(graph_panel(graph))
    return board


def text() -> str:
    """The dashboard as the file has it."""
    return json.dumps(dashboard().build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def run(options: argparse.Namespace) -> None:
    """Writes the file."""
    options.out.write_text(text(), encoding="utf-8")
