"""GRPOscope: instrument panel and laboratory for group-relative policy optimization."""

__version__ = "0.1.0"
