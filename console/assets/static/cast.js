// Plays the recording of an exec's terminal back (asciicast v2). All that a recording has is hostile: it becomes text in the cells of a screen whose size is
// bounded, and nothing else. Sequences that would do more than draw, such as titles, links and questions to the terminal, do nothing.
"use strict";
(() => {
  const most = 500; // columns and rows, as the server bounds them
  const slice = 12; // ms of work between two pictures
  const piece = 1024; // characters that are written without a look at the clock
  const pause = 1;  // s without an event that "skip pauses" leaves
  const wide = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/u;
  const mark = /\p{M}/u, unseen = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/u;
  const lines = "`abcdefghijklmnopqrstuvwxyz{|}~", drawn = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"; // the DEC character set

  const plain = { fg: -1, bg: -1, bold: false, dim: false, italic: false, under: false, strike: false, inverse: false };
  function classes(s) {
    const c = [];
    for (const name of ["bold", "dim", "italic", "under", "strike", "inverse"]) if (s[name]) c.push(`t-${name}`);
    if (s.fg >= 0) c.push(`t-f${s.fg}`);
    if (s.bg >= 0) c.push(`t-bg${s.bg}`);
    return c.join(" ");
  }
  // nearest returns which of the 16 colours is most like another colour.
  function nearest(r, g, b) {
    const high = Math.max(r, g, b), bit = (v) => (high > 0 && v >= high / 2 ? 1 : 0);
    return high < 48 ? 0 : bit(r) + 2 * bit(g) + 4 * bit(b) + (high > 191 ? 8 : 0);
  }
  function indexed(n) {
    if (n < 16) return n;
    if (n > 231) return nearest(8 + 10 * (n - 232), 8 + 10 * (n - 232), 8 + 10 * (n - 232));
    const level = (v) => (v ? 55 + 40 * v : 0);
    n -= 16;
    return nearest(level(Math.trunc(n / 36)), level(Math.trunc(n / 6) % 6), level(n % 6));
  }

  class Screen {
    constructor(cols, rows) {
      this.cols = cols;
      this.rows = rows;
      this.reset();
    }

    reset() {
      this.style = { ...plain };
      this.x = this.y = this.top = 0;
      this.bottom = this.rows - 1;
      this.wraps = this.cursor = true;
      this.set = [false, false]; // which character sets are of lines
      this.shift = 0;
      this.saved = null;
      this.other = null; // the main screen, while the alternate one is shown
      this.state = "text";
      this.cells = this.empty(this.rows);
      this.changed = new Set(this.cells.keys());
    }

    // Cells are never changed, only replaced. Lines without content are one array, until own is called.
    empty(n) {
      const line = Array(this.cols).fill(this.blank());
      line.shared = true;
      return Array(n).fill(line);
    }
    own(y) { return this.cells[y].shared ? (this.cells[y] = [...this.cells[y]]) : this.cells[y]; }
    blank() { return [" ", this.style.bg < 0 ? "" : classes({ ...plain, bg: this.style.bg })]; }

    resize(cols, rows) {
      const fit = (cells) => Array.from({ length: rows }, (_, y) => Array.from({ length: cols }, (_, x) => cells[y]?.[x] ?? [" ", ""]));
      const over = Math.max(0, this.y - rows + 1); // what the cursor's line would lose at the bottom goes at the top
      this.cells = fit(this.cells.slice(over));
      if (this.other) this.other = fit(this.other);
      [this.cols, this.rows, this.top, this.bottom] = [cols, rows, 0, rows - 1];
      this.go(this.x, this.y - over);
      this.changed = new Set(this.cells.keys());
    }

    go(x, y) {
      this.x = Math.min(Math.max(x, 0), this.cols - 1);
      this.y = Math.min(Math.max(y, 0), this.rows - 1);
    }

    scroll(from, n) { // up by n lines below from; down if n is negative
      const size = this.bottom - from + 1, count = Math.min(Math.abs(n), size);
      this.cells.splice(n > 0 ? from : this.bottom + 1 - count, count);
      this.cells.splice(n > 0 ? this.bottom + 1 - count : from, 0, ...this.empty(count));
      for (let y = from; y <= this.bottom; y++) this.changed.add(y);
    }

    feed() {
      if (this.y === this.bottom) this.scroll(this.top, 1);
      else this.go(this.x, this.y + 1);
    }

    put(ch) {
      const ascii = ch >= " " && ch <= "~";
      if (!ascii && unseen.test(ch)) return;
      const row = () => this.own(this.y);
      if (!ascii && mark.test(ch)) {
        let x = Math.max(0, this.x - 1);
        if (row()[x][0] === "" && x > 0) x--;
        const [text, style] = row()[x];
        if (text.length < 12) row()[x] = [text + ch, style];
        this.changed.add(this.y);
        return;
      }
      const at = this.set[this.shift] ? lines.indexOf(ch) : -1;
      if (at >= 0) ch = drawn[at];
      const width = !ascii && wide.test(ch) && this.cols > 1 ? 2 : 1;
      if (this.x + width > this.cols) {
        if (this.wraps) this.x = 0, this.feed();
        else this.x = this.cols - width;
      }
      const style = classes(this.style), cells = row();
      if (cells[this.x][0] === "" && this.x > 0) cells[this.x - 1] = [" ", cells[this.x - 1][1]]; // half of a wide character
      for (let i = 0; i < width; i++) cells[this.x + i] = [i ? "" : ch, style];
      this.x += width;
      if (cells[this.x]?.[0] === "") cells[this.x] = [" ", cells[this.x][1]];
      this.changed.add(this.y);
    }

    erase(y, from, to) {
      for (let x = Math.max(0, from); x < Math.min(to, this.cols); x++) this.own(y)[x] = this.blank();
      this.changed.add(y);
    }

    write(text) {
      for (const ch of text) this[this.state](ch);
    }

    text(ch) {
      switch (ch) {
        case "\x1b": this.state = "escape"; break;
        case "\b": this.go(this.x - 1, this.y); break;
        case "\t": this.go((Math.trunc(this.x / 8) + 1) * 8, this.y); break;
        case "\n": case "\v": case "\f": this.feed(); break;
        case "\r": this.x = 0; break;
        case "\x0e": this.shift = 1; break;
        case "\x0f": this.shift = 0; break;
        default: this.put(ch);
      }
    }

    escape(ch) {
      this.state = "text";
      switch (ch) {
        case "[": this.state = "control", this.params = ""; break;
        case "]": case "P": case "X": case "^": case "_": this.state = "string"; break; // titles, links, images, …
        case "(": this.state = "charset", this.which = 0; break;
        case ")": this.state = "charset", this.which = 1; break;
        case "*": case "+": case "#": case "%": case " ": this.state = "charset", this.which = 2; break;
        case "7": this.save(); break;
        case "8": this.restore(); break;
        case "D": this.feed(); break;
        case "E": this.x = 0, this.feed(); break;
        case "M":
          if (this.y === this.top) this.scroll(this.top, -1);
          else this.go(this.x, this.y - 1);
          break;
        case "c": this.reset(); break;
      }
    }

    charset(ch) {
      this.state = "text";
      if (this.which < 2) this.set[this.which] = ch === "0";
    }

    string(ch) { // ends at BEL, or at ESC and what follows it
      if (ch === "\x07" || ch === "\x18" || ch === "\x1a") this.state = "text";
      if (ch === "\x1b") this.state = "ending";
    }

    ending(ch) {
      this.state = ch === "\x1b" ? "ending" : "text";
    }

    control(ch) {
      if (ch === "\x1b") this.state = "escape";
      else if (ch < " ") this.text(ch), this.state = "control";
      else if (ch < "@") this.params.length < 100 && (this.params += ch);
      else {
        this.state = "text";
        this.sequence(ch);
      }
    }

    sequence(ch) {
      const own = /^[<=>?]/.test(this.params), body = own ? this.params.slice(1) : this.params;
      if (!/^[\d;:]*$/.test(body)) return;
      const p = body.split(/[;:]/).map((n) => Math.min(Number(n), 9999)), n = p[0] || 1;
      if (own) {
        if (this.params[0] === "?" && (ch === "h" || ch === "l")) for (const m of p) this.mode(m, ch === "h");
        return;
      }
      switch (ch) {
        case "A": this.go(this.x, this.y - n); break;
        case "B": case "e": this.go(this.x, this.y + n); break;
        case "C": case "a": this.go(this.x + n, this.y); break;
        case "D": this.go(this.x - n, this.y); break;
        case "E": this.go(0, this.y + n); break;
        case "F": this.go(0, this.y - n); break;
        case "G": case "`": this.go(n - 1, this.y); break;
        case "d": this.go(this.x, n - 1); break;
        case "H": case "f": this.go((p[1] || 1) - 1, n - 1); break;
        case "J":
          for (let y = 0; y < this.rows; y++) {
            if (p[0] >= 2 || (p[0] === 1 ? y < this.y : y > this.y)) this.erase(y, 0, this.cols);
          }
          if (p[0] < 2) this.erase(this.y, p[0] === 1 ? 0 : this.x, p[0] === 1 ? this.x + 1 : this.cols);
          break;
        case "K": this.erase(this.y, p[0] ? 0 : this.x, p[0] === 1 ? this.x + 1 : this.cols); break;
        case "L": if (this.y >= this.top && this.y <= this.bottom) this.scroll(this.y, -n); break;
        case "M": if (this.y >= this.top && this.y <= this.bottom) this.scroll(this.y, n); break;
        case "S": this.scroll(this.top, n); break;
        case "T": this.scroll(this.top, -n); break;
        case "X": this.erase(this.y, this.x, this.x + n); break;
        case "P": case "@": {
          const cells = this.own(this.y), more = Array(Math.min(n, this.cols - this.x)).fill(this.blank());
          if (ch === "P") cells.splice(this.x, more.length), cells.push(...more);
          else cells.splice(this.x, 0, ...more), cells.length = this.cols;
          this.changed.add(this.y);
          break;
        }
        case "r": {
          const bottom = Math.min(p[1] || this.rows, this.rows) - 1;
          if (n - 1 < bottom) this.top = n - 1, this.bottom = bottom, this.go(0, 0);
          break;
        }
        case "s": this.save(); break;
        case "u": this.restore(); break;
        case "m": this.paint(p); break;
      }
    }

    mode(m, on) {
      switch (m) {
        case 7: this.wraps = on; break;
        case 25: this.cursor = on; break;
        case 47: case 1047: case 1049:
          if (on === !!this.other) break;
          if (on && m === 1049) this.save();
          if (on) this.other = this.cells, this.cells = this.empty(this.rows);
          else this.cells = this.other, this.other = null;
          if (!on && m === 1049) this.restore();
          this.changed = new Set(this.cells.keys());
      }
    }

    save() { this.saved = [this.x, this.y, { ...this.style }]; }
    restore() {
      const [x, y, style] = this.saved ?? [0, 0, plain];
      this.style = { ...style };
      this.go(x, y);
    }

    paint(p) {
      const s = this.style, colour = (i) => {
        if (p[i] === 5) return [indexed(Math.min(p[i + 1] || 0, 255)), 2];
        return p[i] === 2 ? [nearest(p[i + 1] || 0, p[i + 2] || 0, p[i + 3] || 0), 4] : [-1, p.length];
      };
      for (let i = 0; i < p.length; i++) {
        const n = p[i];
        if (n === 0) Object.assign(s, plain);
        else if (n === 1) s.bold = true;
        else if (n === 2) s.dim = true;
        else if (n === 3) s.italic = true;
        else if (n === 4) s.under = true;
        else if (n === 7) s.inverse = true;
        else if (n === 9) s.strike = true;
        else if (n === 22) s.bold = s.dim = false;
        else if (n === 23) s.italic = false;
        else if (n === 24) s.under = false;
        else if (n === 27) s.inverse = false;
        else if (n === 29) s.strike = false;
        else if (n >= 30 && n <= 37) s.fg = n - 30;
        else if (n >= 90 && n <= 97) s.fg = n - 82;
        else if (n >= 40 && n <= 47) s.bg = n - 40;
        else if (n >= 100 && n <= 107) s.bg = n - 92;
        else if (n === 39) s.fg = -1;
        else if (n === 49) s.bg = -1;
        else if (n === 38 || n === 48) {
          const [c, used] = colour(i + 1);
          s[n === 38 ? "fg" : "bg"] = c;
          i += used;
        }
      }
    }

    // show draws what has changed.
    show(pre) {
      while (pre.children.length > this.rows) pre.lastChild.remove();
      while (pre.children.length < this.rows) pre.append(document.createElement("div"));
      if (this.shown !== undefined) this.changed.add(this.shown);
      this.shown = Math.min(this.y, this.rows - 1);
      this.changed.add(this.shown);
      for (const y of this.changed) if (y < this.rows) pre.children[y].replaceChildren(...this.row(y));
      this.changed.clear();
    }

    row(y) {
      const parts = [];
      let text = "", style = "";
      const flush = () => {
        if (!text) return;
        if (style) {
          const e = document.createElement("span");
          e.className = style;
          e.textContent = text;
          parts.push(e);
        } else parts.push(text);
        text = "";
      };
      this.cells[y].forEach(([ch, s], x) => {
        const here = this.cursor && y === this.y && x === Math.min(this.x, this.cols - 1);
        const double = this.cells[y][x + 1]?.[0] === "";
        if (here) s += " t-cursor";
        if (double) s += " t-wide";
        if (s !== style || double) flush(), style = s;
        text += ch;
        if (double) flush();
      });
      flush();
      return parts;
    }
  }

  const clock = (s) => `${Math.trunc(s / 60)}:${String(Math.trunc(s % 60)).padStart(2, "0")}`;
  const keys = (text) => text.replace(/[\x00-\x1f\x7f]/g, (c) => `^${c === "\x7f" ? "?" : String.fromCharCode(c.charCodeAt(0) + 64)}`);

  // parse reads a recording. Lines that are no events are left out.
  function parse(text) {
    const bounded = (n) => Math.min(Math.max(Math.trunc(Number(n)) || 1, 1), most);
    const events = [];
    let header = null, last = 0;
    for (const line of text.split("\n")) {
      let value;
      try { value = JSON.parse(line); } catch { continue; }
      if (!header) {
        if (value?.version !== 2) return null;
        header = { cols: bounded(value.width), rows: bounded(value.height) };
      } else if (Array.isArray(value) && Number.isFinite(value[0]) && typeof value[2] === "string") {
        last = Math.max(last, value[0]);
        let data = value[2];
        if (value[1] === "r") data = data.split("x", 2).map(bounded).concat(1).slice(0, 2);
        events.push([last, value[1], data]);
      }
    }
    return header && { ...header, events, length: last };
  }

  function play(box, cast) {
    const make = (name, props) => Object.assign(document.createElement(name), props);
    const screen = make("pre", { className: "output cast", tabIndex: 0 }), typed = make("p", { className: "note" });
    const toggle = make("button", { type: "button" }), time = make("span", { className: "muted nowrap" });
    const seek = make("input", { type: "range", min: 0, max: Math.max(cast.length, .1), step: .1, value: 0, ariaLabel: "Position in the recording" });
    const speed = make("select", { ariaLabel: "Speed" }), skip = make("input", { type: "checkbox", checked: true }), skipping = make("label");
    for (const n of [.5, 1, 2, 5, 20]) speed.append(make("option", { value: n, textContent: `${n} ×`, selected: n === 1 }));
    skipping.append(skip, " skip pauses");
    screen.setAttribute("role", "region");
    const controls = make("div", { className: "actions" });
    controls.append(toggle, seek, time, speed, skipping);
    box.replaceChildren(screen, controls, typed);

    let at = 0, next = 0, part = 0, playing = false, before = 0, drew = 0, wanted = false, input = "", said = "", terminal;
    function begin() {
      terminal = new Screen(cast.cols, cast.rows);
      next = part = 0;
      input = said = "";
    }

    // advance applies the events until a time; false if there is more to do.
    function advance() {
      const end = performance.now() + slice;
      while (next < cast.events.length && cast.events[next][0] <= at) {
        if (performance.now() > end) return false;
        const [, kind, data] = cast.events[next];
        if (kind === "o") {
          let to = part + piece;
          if (/[\ud800-\udbff]/.test(data[to - 1])) to--;
          terminal.write(data.slice(part, to));
          part = to;
          if (part < data.length) continue;
        } else if (kind === "r") terminal.resize(...data);
        else if (kind === "i") input = (input + keys(data)).slice(-120);
        else if (kind === "m") said = data.slice(0, 200);
        next++;
        part = 0;
      }
      return true;
    }

    function tick(now) {
      wanted = false;
      if (!box.isConnected) return;
      if (playing) {
        at += Math.max(0, now - before) / 1000 * speed.value;
        const ahead = cast.events[next]?.[0];
        if (skip.checked && ahead > at + pause * speed.value) at = ahead - pause * speed.value;
      }
      before = now;
      const done = advance();
      screen.setAttribute("aria-busy", !done);
      if (at >= cast.length && done) at = cast.length, playing = false;
      if (done || now - drew > 200) { // drawing takes longer than what a slice does
        draw();
        drew = now;
      }
      if (playing || !done) want();
    }
    function want() {
      if (!wanted) requestAnimationFrame(tick);
      wanted = true;
    }

    function draw() {
      terminal.show(screen);
      screen.setAttribute("aria-label", `Terminal, ${terminal.cols} by ${terminal.rows}`);
      seek.value = at;
      seek.setAttribute("aria-valuetext", `${clock(at)} of ${clock(cast.length)}`);
      time.textContent = `${clock(at)} / ${clock(cast.length)}`;
      toggle.textContent = playing ? "Pause" : at >= cast.length ? "Play again" : "Play";
      typed.textContent = [input && `Typed: ${input}`, said].filter(Boolean).join(" · ");
    }

    function move(to) {
      at = Math.min(Math.max(to, 0), cast.length);
      if ((next > 0 || part > 0) && cast.events[part > 0 ? next : next - 1][0] > at) begin();
      before = performance.now();
      screen.setAttribute("aria-busy", true);
      want();
    }
    function turn() {
      playing = !playing;
      move(playing && at >= cast.length ? 0 : at);
    }

    toggle.addEventListener("click", turn);
    seek.addEventListener("input", () => move(Number(seek.value)));
    screen.addEventListener("keydown", (e) => {
      const to = { ArrowLeft: at - 5, ArrowRight: at + 5, Home: 0, End: cast.length }[e.key];
      if (e.altKey || e.ctrlKey || e.metaKey || e.key !== " " && to === undefined) return;
      e.preventDefault();
      e.stopPropagation();
      if (e.key === " ") turn();
      else move(to);
    });
    begin();
    turn();
    toggle.focus();
  }

  document.addEventListener("click", async (e) => {
    const button = e.target.closest("button[data-cast]");
    if (!button) return;
    const box = button.parentElement;
    button.disabled = true;
    let cast = null;
    try {
      const answer = await fetch(button.dataset.cast);
      if (answer.ok) cast = parse(await answer.text());
    } catch { /* the same as an answer that is none */ }
    if (cast) {
      play(box, cast);
      return;
    }
    button.disabled = false;
    const status = document.getElementById("status");
    status.className = "toast";
    status.textContent = "The recording cannot be read. Download it to see why.";
  });
})();
