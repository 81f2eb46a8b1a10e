"""Charts: functions from data to a Vega-Lite figure."""
