"use strict";
// What the reader chose, applied to a chart: pure functions of its specification, its data and the choices.
(() => {
  const POINTS = { none: 1, light: 5, strong: 15 }; // drawn points in the moving average
  const AXES = { step: { title: "step", format: "~s" }, tokens: { title: "tokens", format: "~s" }, hours: { title: "hours", format: "~g" } };

  const rowsOf = columns => {
    const names = Object.keys(columns);
    return (columns[names[0]] || []).map((_, i) => Object.fromEntries(names.map(name => [name, columns[name][i]])));
  };

  const overSteps = layer => layer.encoding?.x?.axis?.title === "step";
  const isOverTime = spec => spec.layer.some(overSteps);
  const isCurve = data => "thick" in data && "mean" in data.thick;

  // Mean of the points around each, as many to the left as to the right, so that the ends do not lag.
  const smoothed = (values, size) => values.map((value, i) => {
    if (value === null) return null;
    const reach = Math.min((size - 1) / 2, i, values.length - 1 - i);
    const near = values.slice(i - reach, i + reach + 1).filter(one => one !== null);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
  const smoothRows = (rows, size) => {
    const byRun = Map.groupBy ? Map.groupBy(rows, row => row.run) : rows.reduce((map, row) => map.set(row.run, [...(map.get(row.run) || []), row]), new Map());
    for (const group of byRun.values()) {
      const values = smoothed(group.map(row => row.mean), size);
      group.forEach((row, i) => { row.smoothed = values[i]; });
    }
  };

  // The place of a step on another axis, by straight lines between what was recorded; null outside.
  const placed = (axis, step) => {
    const known = axis.step;
    if (step === null || !(step >= known[0] && step <= known[known.length - 1])) return null;
    let low = 0, high = known.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (known[middle] <= step) low = middle; else high = middle;
    }
    const share = (step - known[low]) / (known[high] - known[low]);
    return axis.value[low] + share * (axis.value[high] - axis.value[low]);
  };

  // Names of the columns of each data set that hold steps.
  const stepColumns = spec => {
    const found = {};
    for (const layer of spec.layer.filter(overSteps)) {
      const fields = [layer.encoding.x.field, layer.encoding.x2?.field].filter(Boolean);
      found[layer.data.name] = [...new Set([...(found[layer.data.name] || []), ...fields])];
    }
    return found;
  };

  // Puts the data on another axis; false, and nothing changed, where some of it has no place there.
  const moveTo = (name, columns, rows, runs) => {
    const moved = [];
    for (const [set, fields] of Object.entries(columns)) {
      for (const row of rows[set]) {
        const run = runs.length === 1 ? runs[0] : runs.find(one => one.name === (row.run ?? row.line));
        const axis = run?.axes[name];
        if (!axis) return false;
        for (const field of fields) {
          const place = placed(axis, row[field]);
          if (place === null) return false;
          moved.push([row, field, place]);
        }
      }
    }
    for (const [row, field, place] of moved) row[field] = place;
    return true;
  };

  const within = fields => {
    const [first, last] = [fields[0], fields[fields.length - 1]].map(field => `datum[${JSON.stringify(field)}]`);
    return { filter: `(!isValid(window_from) || ${last} >= window_from) && (!isValid(window_to) || ${first} <= window_to)` };
  };
  const windowed = (layer, fields, axis) => {
    const x = { ...layer.encoding.x, axis: { ...layer.encoding.x.axis, ...AXES[axis] },
      scale: { ...layer.encoding.x.scale, domainMin: { expr: "window_from" }, domainMax: { expr: "window_to" } } };
    const mark = layer.encoding.x2 ? { ...layer.mark, clip: true } : layer.mark;
    return { ...layer, mark, encoding: { ...layer.encoding, x }, transform: [within(fields), ...(layer.transform || [])] };
  };

  const logarithmic = layer => {
    const y = layer.encoding?.y;
    if (y?.type !== "quantitative") return layer;
    const scale = { type: "log", nice: true };
    return { ...layer, encoding: { ...layer.encoding, y: { ...y, scale } } };
  };
  const positive = rows => Object.values(rows).flat().every(row => ["mean", "value"].every(field => typeof row[field] !== "number" || row[field] > 0));

  // The lines go through the smoothed points; the curve as recorded stays behind them, faint.
  const withSmoothing = (layers, data) => layers.flatMap(layer => {
    if (layer.data?.name !== "thick") return [layer];
    const smooth = { ...layer, encoding: { ...layer.encoding, y: { ...layer.encoding.y, field: "smoothed" } } };
    if (layer.encoding.tooltip) smooth.encoding.tooltip = [...layer.encoding.tooltip, { field: "smoothed", type: "quantitative", format: ",.3~r" }];
    const isLine = (layer.mark.type || layer.mark) === "line";
    return isLine && !("thin" in data) ? [{ ...layer, mark: { ...layer.mark, strokeWidth: 1, opacity: 0.38 } }, smooth] : [smooth];
  });

  // The specification with its data, and the axis that it is really on.
  const adapted = (spec, data, choices, runs) => {
    const seen = row => !choices.hidden.has(row.run ?? row.line);
    const datasets = Object.fromEntries(Object.entries(data).map(([name, columns]) => [name, rowsOf(columns).filter(seen)]));
    if (!isOverTime(spec)) return { spec: { ...spec, datasets }, axis: "", datasets };
    const columns = stepColumns(spec);
    const axis = choices.axis !== "step" && moveTo(choices.axis, columns, datasets, runs) ? choices.axis : "step";
    let layers = spec.layer.map(layer => overSteps(layer) ? windowed(layer, columns[layer.data.name], axis) : layer);
    if (isCurve(data)) {
      smoothRows(datasets.thick, POINTS[choices.smoothing]);
      if (choices.smoothing !== "none") layers = withSmoothing(layers, data);
      if (choices.log && positive(datasets)) layers = layers.map(logarithmic);
    }
    const params = [{ name: "window_from", value: null }, { name: "window_to", value: null }];
    return { spec: { ...spec, layer: layers, params, datasets }, axis, datasets };
  };

  // Cells around points show what their point shows; Vega-Lite names the point's row in them for numbers only.
  const withCellTips = vega => {
    const walk = marks => (marks || []).forEach(mark => {
      const tip = mark.encode?.update?.tooltip;
      if (mark.name?.endsWith("voronoi") && tip?.signal) tip.signal = tip.signal.replace(/\bdatum(\.datum)?\[/g, "datum.datum[");
      walk(mark.marks);
    });
    walk(vega.marks);
    return vega;
  };

  window.grposcope = Object.assign(window.grposcope || {}, { adapted, isOverTime, isCurve, withCellTips });
})();
