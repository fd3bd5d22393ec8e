// Draws every <figure data-chart>: axes to choose, points that say what they are, a legend that hides groups.
"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg", MARGIN = { left: 74, right: 16, top: 14, bottom: 44 };

  function add(parent, name, attributes = {}, text) {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return parent.appendChild(node);
  }

  function create(parent, name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return parent.appendChild(node);
  }

  const plain = (value) => {
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e6 || size < 1e-4)) return value.toExponential(1);
    return String(Number(value.toPrecision(6)));
  };

  function ticks(low, high, { log, whole }, most) {
    if (log) {
      for (const steps of [[1, 2, 5], [1, 3], [1]]) {
        const found = [];
        for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
          for (const step of steps) {
            const value = step * 10 ** power;
            if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
          }
        if (found.length >= 2 && found.length <= most) return found;
        if (steps.length === 1 && found.length > most) return found.filter((_, index) => index % 2 === 0);
      }
    }
    const rough = Math.max(whole ? 1 : 0, (high - low) / most), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step)
      found.push(Number(value.toPrecision(12)));
    return found;
  }

  function scale(axis, values, from, to) {
    let log = axis.log && values.every((value) => value > 0);
    let low = Math.min(...values), high = Math.max(...values);
    if (low === high) { const pad = Math.abs(low) * 0.1 || 1; low -= pad; high += pad; if (low <= 0) log = false; }
    else if (log) { const pad = (high / low) ** 0.06; low /= pad; high *= pad; }
    else { const pad = (high - low) * 0.06; low = axis.zero ? Math.min(0, low) : low - pad; high += pad; }
    const f = log ? Math.log10 : (value) => value;
    const place = (value) => from + ((f(value) - f(low)) / (f(high) - f(low))) * (to - from);
    return { place, ticks: (most) => ticks(low, high, { log, whole: axis.whole }, most) };
  }

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.data = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
      this.hidden = new Set();
      const bar = create(figure, "div", "controls");
      this.x = this.choice(bar, "across", this.data.x);
      this.y = this.choice(bar, "up", this.data.y);
      this.plot = create(figure, "div", "plot");
      this.tip = create(this.plot, "div", "tip");
      this.tip.setAttribute("role", "status");
      this.tip.hidden = true;
      this.legend(create(figure, "div", "legend"));
      this.draw(); // at once, so that a page that is printed right away has its figures
      // Drawing within the observer would change what it observes, of which the browser complains.
      new ResizeObserver(() => requestAnimationFrame(() => this.fit())).observe(this.plot);
    }

    fit() {
      if (this.plot.clientWidth !== this.width) this.draw();
    }

    choice(bar, word, axes) {
      const label = create(bar, "label", axes.length < 2 ? "single" : "");
      create(label, "span", "", word + ":");
      const select = create(label, "select");
      axes.forEach((axis, index) => { create(select, "option", "", axis.label).value = index; });
      select.addEventListener("change", () => this.draw());
      return select;
    }

    legend(box) {
      this.data.groups.forEach((name, group) => {
        const button = create(box, "button", "group");
        button.type = "button";
        button.setAttribute("aria-pressed", "true");
        create(button, "span", "swatch c" + (group % 8));
        create(button, "span", "", name);
        button.addEventListener("click", () => {
          if (!this.hidden.delete(group)) this.hidden.add(group);
          button.setAttribute("aria-pressed", String(!this.hidden.has(group)));
          this.draw();
        });
      });
      for (const mark of this.data.marks) create(box, "span", "mark", mark);
    }

    draw() {
      const x = this.data.x[this.x.value], y = this.data.y[this.y.value];
      const known = (point) => Number.isFinite(point.values[x.key]) && Number.isFinite(point.values[y.key]);
      const points = this.data.points.filter((point) => known(point) && !this.hidden.has(point.group));
      const width = this.width = this.plot.clientWidth;
      if (width <= MARGIN.left + MARGIN.right) return; // not shown
      const height = Math.max(240, Math.min(420, width * 0.55));
      this.plot.querySelector("svg")?.remove();
      this.tip.hidden = true;
      const svg = add(this.plot, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
      svg.setAttribute("aria-label", `${y.label} over ${x.label}`);
      if (!points.length) { add(svg, "text", { x: 20, y: 40 }, "nothing is known of these two"); return; }
      const across = scale(x, this.range(points, x), MARGIN.left, width - MARGIN.right);
      const up = scale(y, this.range(points, y), height - MARGIN.bottom, MARGIN.top);
      this.axes(svg, x, y, across, up, width, height);
      for (const [axis, vertical] of [[x, true], [y, false]]) this.limit(svg, axis, vertical, across, up, width, height);
      this.lines(svg, points, x, y, across, up);
      for (const point of points.filter((one) => !one.star).concat(points.filter((one) => one.star)))
        this.mark(svg, point, across.place(point.values[x.key]), up.place(point.values[y.key]));
    }

    range(points, axis) {
      const limit = axis.limit === null ? [] : [axis.limit];
      return points.map((point) => point.values[axis.key]).concat(limit);
    }

    axes(svg, x, y, across, up, width, height) {
      for (const value of across.ticks(Math.max(2, Math.floor(width / 90)))) {
        const at = across.place(value);
        add(svg, "line", { x1: at, x2: at, y1: MARGIN.top, y2: height - MARGIN.bottom, class: "grid" });
        add(svg, "text", { x: at, y: height - MARGIN.bottom + 16, "text-anchor": "middle" }, plain(value));
      }
      for (const value of up.ticks(6)) {
        const at = up.place(value);
        add(svg, "line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at, class: "grid" });
        add(svg, "text", { x: MARGIN.left - 7, y: at + 4, "text-anchor": "end" }, plain(value));
      }
      const middle = (MARGIN.left + width - MARGIN.right) / 2, centre = (MARGIN.top + height - MARGIN.bottom) / 2;
      const fit = (label, room) => (label.length * 6.4 > room ? label.split(" (")[0] : label);
      const below = { x: middle, y: height - 8, "text-anchor": "middle", class: "label" };
      add(svg, "text", below, fit(x.label, width - MARGIN.left - MARGIN.right));
      const turned = { x: 13, y: centre, transform: `rotate(-90 13 ${centre})`, "text-anchor": "middle", class: "label" };
      add(svg, "text", turned, fit(y.label, height - MARGIN.top - MARGIN.bottom));
    }

    limit(svg, axis, vertical, across, up, width, height) {
      if (axis.limit === null) return;
      const at = (vertical ? across : up).place(axis.limit);
      if (!Number.isFinite(at)) return;
      const line = vertical ? { x1: at, x2: at, y1: MARGIN.top, y2: height - MARGIN.bottom }
        : { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at };
      add(svg, "line", { ...line, class: "limit" });
      const place = vertical ? { x: at - 4, y: MARGIN.top + 10 } : { x: width - MARGIN.right, y: at - 4 };
      add(svg, "text", { ...place, "text-anchor": "end", class: "limit" }, axis.limit_label);
    }

    lines(svg, points, x, y, across, up) {
      if (!this.data.connect) return;
      const series = new Map();
      for (const point of points) series.set(point.series, [...(series.get(point.series) ?? []), point]);
      for (const some of series.values()) {
        const path = some.map((point) => `${across.place(point.values[x.key])},${up.place(point.values[y.key])}`);
        add(svg, "polyline", { points: path.join(" "), class: "line c" + (some[0].group % 8) });
      }
    }

    mark(svg, point, x, y) {
      const kind = (point.hollow ? "hollow " : "filled ") + (point.ring ? "ring " : "") + "c" + (point.group % 8);
      const star = "M0,-9L2.6,-3.6L8.6,-2.8L4.3,1.4L5.3,7.3L0,4.5L-5.3,7.3L-4.3,1.4L-8.6,-2.8L-2.6,-3.6Z";
      const node = point.star
        ? add(svg, "path", { d: star, transform: `translate(${x},${y})`, class: "star " + kind, tabindex: 0 })
        : add(svg, "circle", { cx: x, cy: y, r: this.data.points.length > 400 ? 3 : 4.5, class: kind, tabindex: 0 });
      node.setAttribute("aria-label", point.tip.join(", "));
      for (const event of ["pointerenter", "focus", "click"]) node.addEventListener(event, () => this.show(point, x, y));
      for (const event of ["pointerleave", "blur"]) node.addEventListener(event, () => { this.tip.hidden = true; });
    }

    show(point, x, y) {
      this.tip.replaceChildren();
      point.tip.forEach((line, index) => create(this.tip, index ? "div" : "strong", "", line));
      this.tip.hidden = false;
      const free = this.plot.clientWidth - this.tip.offsetWidth;
      this.tip.style.left = Math.max(0, Math.min(free, x + 12)) + "px";
      this.tip.style.top = Math.max(0, y - this.tip.offsetHeight - 10) + "px";
    }
  }

  for (const figure of document.querySelectorAll("figure[data-chart]")) new Chart(figure);
})();
