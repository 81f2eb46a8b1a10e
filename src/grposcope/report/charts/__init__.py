"""Charts: functions from data to a `Figure`, a file per topic. The theme is `base.THEME`."""
