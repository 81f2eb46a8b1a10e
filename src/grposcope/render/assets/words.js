"use strict";
// Words of completions: what differs between two of them, and where searched words stand.
(() => {
  const split = text => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];

  // Length of the longest common subsequence of every pair of ends, (n + 1) × (m + 1).
  const common = (first, second) => {
    const wide = second.length + 1, table = new Uint16Array((first.length + 1) * wide);
    for (let i = first.length - 1; i >= 0; i--) {
      for (let j = second.length - 1; j >= 0; j--) {
        table[i * wide + j] = first[i] === second[j] ? table[(i + 1) * wide + j + 1] + 1
          : Math.max(table[(i + 1) * wide + j], table[i * wide + j + 1]);
      }
    }
    return (i, j) => table[i * wide + j];
  };

  // Parts of two texts in order: { kind, text }, where kind is "same", or "first" or "second" for what only one has.
  const difference = (one, other) => {
    const first = split(one), second = split(other), parts = [];
    const add = (kind, word) => {
      const last = parts[parts.length - 1];
      if (last?.kind === kind) last.text += word; else parts.push({ kind, text: word });
    };
    const length = common(first, second);
    let i = 0, j = 0;
    while (i < first.length || j < second.length) {
      if (i < first.length && j < second.length && first[i] === second[j]) { add("same", first[i]); i++; j++; }
      else if (j >= second.length || (i < first.length && length(i + 1, j) >= length(i, j + 1))) add("first", first[i++]);
      else add("second", second[j++]);
    }
    return parts;
  };

  // Marks where the words stand in these elements, also across the tokens of a text.
  const highlight = (elements, words) => {
    if (!CSS.highlights) return;
    const ranges = [];
    for (const element of words.length ? elements : []) {
      const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), nodes = [];
      let whole = "";
      while (walker.nextNode()) { nodes.push([whole.length, walker.currentNode]); whole += walker.currentNode.data; }
      const text = whole.toLowerCase();
      const put = (range, end, offset) => {
        const [start, node] = nodes.findLast(([begin]) => begin <= offset - (end === "End" ? 1 : 0));
        range[`set${end}`](node, Math.min(offset - start, node.length));
      };
      for (const word of words) {
        for (let at = text.indexOf(word); at >= 0 && ranges.length < 1000; at = text.indexOf(word, at + word.length)) {
          const range = new Range();
          put(range, "Start", at);
          put(range, "End", at + word.length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  };

  window.grposcope = Object.assign(window.grposcope || {}, { difference, highlight });
})();
