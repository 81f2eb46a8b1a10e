"""Whether a run goes like runs that went well, judged by their metrics alone."""

from grposcope.core.instrument import Instrument

INSTRUMENT = Instrument("reference", "Does this run behave like the good ones?")
