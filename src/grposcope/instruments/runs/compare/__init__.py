"""By how much two runs differ, and where they part, how they ended, and which settings differ."""
