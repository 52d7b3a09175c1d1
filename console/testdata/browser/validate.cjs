// Reads [{name, html}] from standard input and prints what is wrong with each page, one line a problem. The argument is the folder of the packages.
"use strict";
const { createRequire } = require("node:module");
const { HtmlValidate, StaticConfigLoader } = createRequire(process.argv[2] + "/")("html-validate");

const validator = new HtmlValidate(
  new StaticConfigLoader({
    root: true,
    extends: ["html-validate:standard", "html-validate:a11y", "html-validate:document"],
    rules: {
      "doctype-style": "off",
      "long-title": "off",
      "no-inline-style": "error",
      "prefer-native-element": ["error", { exclude: ["region"] }], // a scrolling part is a region, not a section of the document
      "no-raw-characters": "off",
      "no-trailing-whitespace": "off",
      "void-style": "off",
      "require-sri": "off",
    },
  }),
);
let text = "";
process.stdin.on("data", (d) => (text += d));
process.stdin.on("end", async () => {
  for (const page of JSON.parse(text)) {
    const report = await validator.validateString(page.html, page.name);
    for (const result of report.results) {
      for (const m of result.messages) {
        const line = page.html.split("\n")[m.line - 1] || "";
        console.log(`${page.name}: ${m.ruleId}: ${m.message}: ${line.slice(Math.max(0, m.column - 30), m.column + 90)}`);
      }
    }
  }
});
