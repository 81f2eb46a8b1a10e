"""The script of the charts of a page: Vega, Vega-Lite and Vega-Embed, bundled once, so that who reads pages needs no
converter of 84 MB. `python tests/helpers/vega_script.py` writes it anew, for a newer vl-convert."""

from __future__ import annotations

from pathlib import Path

import vl_convert

import grposcope

SCRIPT = Path(grposcope.__file__).parent / "render" / "assets" / "vega.js"

LICENSE = SCRIPT.with_suffix(".LICENSE")


def bundle() -> str:
    """The script as vl-convert bundles it, after a line that says what it holds and under which licence."""
    lite = vl_convert.get_vegalite_versions()[-1]
    parts = f"Vega {vl_convert.get_vega_version()}, Vega-Lite {lite}, Vega-Embed {vl_convert.get_vega_embed_version()}"
    head = f"/* {parts}; (c) University of Washington Interactive Data Lab; BSD-3-Clause, see {LICENSE.name} */\n"
    return head + vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;")


if __name__ == "__main__":
    SCRIPT.write_text(bundle())
