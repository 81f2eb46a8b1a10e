"""Whether a run goes like runs that went well, judged by their metrics alone."""
