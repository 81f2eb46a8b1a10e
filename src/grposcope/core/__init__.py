"""What everything else rests on: an estimate with its error, a run, an answer, errors, files, text."""
